# Libraries that compress: zlib, Zstandard, LZ4, Snappy. Each is optional and linked statically where its archive exists.
#
# src/data/codec.c refers to them weakly, so libquern.a needs none of them: what is not linked in is looked for at run time
# (libzstd.so.1, ...), and what is not there either is named in a message. `quern_codecs` is what the shared library, the
# command and the tests link with; its -u options pull out of each archive what a weak reference alone would leave there.
option(QUERN_CODECS "link zlib, zstd, lz4 and snappy statically where they are installed" ON)
add_library(quern_codecs INTERFACE)

function(quern_codec name archive roots)
    find_library(QUERN_${name}_LIBRARY NAMES lib${archive}.a)
    mark_as_advanced(QUERN_${name}_LIBRARY)
    if(NOT QUERN_${name}_LIBRARY)
        message(STATUS "Quern: lib${archive}.a was not found: ${archive} is looked for at run time")
        return()
    endif()
    foreach(root ${roots})
        target_link_options(quern_codecs INTERFACE "LINKER:-u,${root}")
    endforeach()
    target_link_libraries(quern_codecs INTERFACE ${QUERN_${name}_LIBRARY} ${ARGN})
endfunction()

if(QUERN_CODECS)
    # Snappy is C++ inside; its run time goes in with it, so that nothing new is needed where Quern runs.
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libstdc++.a OUTPUT_VARIABLE quern_libstdcxx
        OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    quern_codec(ZLIB z "inflateInit2_;inflate;inflateReset;inflateEnd;deflateInit2_;deflate;deflateEnd")
    quern_codec(ZSTD zstd "ZSTD_decompress;ZSTD_compress;ZSTD_compressBound;ZSTD_isError;ZSTD_getFrameContentSize")
    quern_codec(LZ4 lz4 "LZ4_decompress_safe;LZ4_compress_default;LZ4_compressBound")
    if(IS_ABSOLUTE "${quern_libstdcxx}")
        quern_codec(SNAPPY snappy "snappy_uncompress;snappy_uncompressed_length"
            ${quern_libstdcxx} m)
    endif()
endif()
