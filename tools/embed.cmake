# Files as bytes of C. cmake -D OUT=x.c -D HEADER=x.h -D NAME=css -D "FILES=a.css|b.css" -P embed.cmake
# Several files of one NAME become one text, in their order, with an empty line between them. Called once for each NAME;
# OUT is written whole.
string(REPLACE "|" ";" files "${FILES}")
set(hex "")
foreach(file ${files})
    file(READ ${file} part HEX)
    if(hex)
        string(APPEND hex "0a")
    endif()
    string(APPEND hex "${part}")
endforeach()
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "/* Made by the build from ${FILES}. */\n#include \"${HEADER}\"\n\nconst unsigned char ${NAME}[] = {\n${bytes}0};\nconst size_t ${NAME}_bytes = sizeof(${NAME}) - 1;\n")
