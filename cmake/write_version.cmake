# Writes OUTPUT, which defines cli/version.hpp, from VERSION and from COMMIT or the git repository at SOURCE.
if(NOT COMMIT)
  find_program(git git)
  if(git AND EXISTS ${SOURCE}/.git)
    execute_process(COMMAND ${git} -C ${SOURCE} describe --always --dirty=+changes --abbrev=12 --exclude=*
      OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
if(NOT COMMIT)
  set(COMMIT unknown)
endif()
set(text "#include \"cli/version.hpp\"\n
namespace zeroplan::cli {
std::string_view version() { return \"${VERSION}\"; }
std::string_view commit() { return \"${COMMIT}\"; }
}  // namespace zeroplan::cli\n")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
