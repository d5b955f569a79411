# zeroplan_embed(TARGET GROUP glob... [GROUP glob...]): a static library with the files' text compiled in.
# `planner/describe/text/embedded.hpp` declares how to reach it.
function(zeroplan_embed target)
  cmake_parse_arguments(arg "" "" "MODELS;HARDWARE;ARCHITECTURES;ENGINES;OPTIMIZERS;PACE" ${ARGN})
  set(output ${CMAKE_CURRENT_BINARY_DIR}/embedded.cpp)
  set(all_files)
  foreach(group MODELS HARDWARE ARCHITECTURES ENGINES OPTIMIZERS PACE)
    file(GLOB files CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${arg_${group}})
    list(SORT files)
    list(APPEND all_files ${files})
    string(REPLACE ";" "," joined "${files}")
    list(APPEND definitions "-D${group}=${joined}")
  endforeach()
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} ${definitions} -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/write_embedded.cmake
    DEPENDS ${all_files} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/write_embedded.cmake
    WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
    COMMENT "Embedding the shipped descriptions"
    VERBATIM)
  add_library(${target} STATIC ${output})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
endfunction()
