# zeroplan_version: the version and the commit that the program was built from (cli/version.hpp). The commit is
# looked up at each build; the file is written only when it changed, so that nothing is compiled for nothing.
set(ZEROPLAN_COMMIT "" CACHE STRING "The commit to record where the sources are in no git repository")
set(version_source ${CMAKE_CURRENT_BINARY_DIR}/version.cpp)
add_custom_target(zeroplan_find_version
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${version_source} -DVERSION=${PROJECT_VERSION} "-DCOMMIT=${ZEROPLAN_COMMIT}"
          -DSOURCE=${PROJECT_SOURCE_DIR} -P ${PROJECT_SOURCE_DIR}/cmake/write_version.cmake
  BYPRODUCTS ${version_source}
  COMMENT "Looking up the commit"
  VERBATIM)
add_library(zeroplan_version STATIC ${version_source})
target_include_directories(zeroplan_version PRIVATE ${PROJECT_SOURCE_DIR})
add_dependencies(zeroplan_version zeroplan_find_version)
