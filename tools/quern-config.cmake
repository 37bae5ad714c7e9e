# find_package(quern): quern::quern, which is the shared library, or by name quern::quern_shared and quern::quern_static.
include(${CMAKE_CURRENT_LIST_DIR}/quern-targets.cmake)
if(NOT TARGET quern::quern)
    add_library(quern::quern INTERFACE IMPORTED)
    set_target_properties(quern::quern PROPERTIES INTERFACE_LINK_LIBRARIES quern::quern_shared)
endif()
