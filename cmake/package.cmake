# What is installed beside the program, and the package of it: `cmake --install`, or `cpack` in the build folder.
#
# Modules are in lib/zeroplan, as no other program opens them. The manual page and the completions are made by the program
# itself, of the table that its help is made of.
set(shell_folder ${CMAKE_CURRENT_BINARY_DIR}/shell)
set(shell_files "")
function(zeroplan_add_shell_file name folder)
  add_custom_command(OUTPUT ${shell_folder}/${name}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${shell_folder}
    COMMAND zeroplan ${ARGN} --out ${shell_folder}/${name}
    DEPENDS zeroplan VERBATIM)
  install(FILES ${shell_folder}/${name} DESTINATION ${folder})
  set(shell_files ${shell_files} ${shell_folder}/${name} PARENT_SCOPE)
endfunction()
zeroplan_add_shell_file(zeroplan.1 ${CMAKE_INSTALL_MANDIR}/man1 manual)
zeroplan_add_shell_file(zeroplan ${CMAKE_INSTALL_DATADIR}/bash-completion/completions completion bash)
zeroplan_add_shell_file(_zeroplan ${CMAKE_INSTALL_DATADIR}/zsh/site-functions completion zsh)
zeroplan_add_shell_file(zeroplan.fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d completion fish)
add_custom_target(zeroplan_shell_files ALL DEPENDS ${shell_files})
install(FILES README.md CHANGELOG.md CITATION.cff DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME zeroplan)
set(CPACK_PACKAGE_VENDOR "zeroplan")
set(CPACK_PACKAGE_CONTACT "zeroplan maintainers <zeroplan@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "memory, traffic and speed of training large transformers")
set(CPACK_PACKAGE_DESCRIPTION
  "zeroplan says whether a model fits on described GPUs with data parallelism, model parallelism and every ZeRO
 stage, what it moves and how fast it is, and runs the plan to lay measured memory and traffic beside the predicted.")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Live runs open modules; planning needs none of what these need.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libopenblas0, openmpi-bin")
include(CPack)
