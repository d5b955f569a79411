# The module for V100 (sm_70). CUDA 13 left Volta out, and nvcc 12 is in no package that builds can take: clang compiles the
# kernels, ptxas of CUDA 12 assembles them. Nothing of CUDA is linked: the program opens the libraries of CUDA 12 that a
# machine has before it opens the module (executor/cuda_choice.hpp), which finds their symbols there.
#
# ZEROPLAN_CUDA12 is a folder with include/, bin/ptxas and nvvm/libdevice: a toolkit, or what scripts/check_cuda puts together.
set(ZEROPLAN_CUDA12 "" CACHE PATH "CUDA 12: a toolkit, or the folder 12.9 that scripts/check_cuda makes")
find_program(ZEROPLAN_CUDA_CLANG NAMES clang++-22 DOC "A clang that compiles CUDA 12" REQUIRED)
find_program(ZEROPLAN_FATBINARY fatbinary HINTS ${ZEROPLAN_CUDA12}/bin /usr/local/cuda/bin REQUIRED)
if(NOT EXISTS ${ZEROPLAN_CUDA12}/bin/ptxas OR NOT EXISTS ${ZEROPLAN_CUDA12}/include/cublasLt.h)
  message(FATAL_ERROR "ZEROPLAN_CUDA12 (${ZEROPLAN_CUDA12}) has no bin/ptxas or no include/cublasLt.h")
endif()

# clang looks for its tools in one folder.
set(sm70_toolkit ${CMAKE_CURRENT_BINARY_DIR}/cuda12)
file(MAKE_DIRECTORY ${sm70_toolkit}/bin)
file(CREATE_LINK ${ZEROPLAN_CUDA12}/include ${sm70_toolkit}/include SYMBOLIC)
file(CREATE_LINK ${ZEROPLAN_CUDA12}/nvvm ${sm70_toolkit}/nvvm SYMBOLIC)
file(CREATE_LINK ${ZEROPLAN_CUDA12}/bin/ptxas ${sm70_toolkit}/bin/ptxas SYMBOLIC)
file(CREATE_LINK ${ZEROPLAN_FATBINARY} ${sm70_toolkit}/bin/fatbinary SYMBOLIC)

file(GLOB sm70_kernels CONFIGURE_DEPENDS device/cuda/kernels/*.cu)
set(sm70_objects "")
foreach(kernel IN LISTS sm70_kernels)
  get_filename_component(name ${kernel} NAME_WE)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/sm70/${name}.o)
  # clang warns that it knows 12.9 in part only; wrappers of instructions that sm_70 lacks do not use their parameters;
  # nvcc unrolls some loops that clang does not, which is no error.
  add_custom_command(OUTPUT ${object}
    COMMAND ${ZEROPLAN_CUDA_CLANG} -x cuda --cuda-gpu-arch=sm_70 --cuda-path=${sm70_toolkit} --no-offload-new-driver
            -std=c++20 -O3 -DNDEBUG -fPIC -Wall -Wextra -Werror -Wno-unknown-cuda-version -Wno-unused-parameter
            -Wno-error=pass-failed -I${PROJECT_SOURCE_DIR}
            -DZEROPLAN_OLDEST_SM=70 -MD -MF ${object}.d -c ${kernel} -o ${object}
    DEPENDS ${kernel}
    DEPFILE ${object}.d
    COMMENT "Compiling ${name}.cu for sm_70" VERBATIM)
  list(APPEND sm70_objects ${object})
endforeach()
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/sm70)

set_source_files_properties(${sm70_objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)

# A module zeroplan_NAME_sm70.so. What it takes of CUDA is found when it is opened, so nothing asks for it here.
function(zeroplan_add_sm70_module name)
  add_library(zeroplan_${name}_sm70_module MODULE modules/${name}.cpp $<TARGET_OBJECTS:zeroplan_module_interface> ${ARGN})
  target_include_directories(zeroplan_${name}_sm70_module SYSTEM PRIVATE ${sm70_toolkit}/include)
  target_compile_definitions(zeroplan_${name}_sm70_module PRIVATE ZEROPLAN_OLDEST_SM=70)
  target_link_libraries(zeroplan_${name}_sm70_module PRIVATE zeroplan_executor zeroplan_cpu zeroplan_options)
  set_target_properties(zeroplan_${name}_sm70_module PROPERTIES
    PREFIX "" SUFFIX ".so" OUTPUT_NAME zeroplan_${name}_sm70 LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  install(TARGETS zeroplan_${name}_sm70_module LIBRARY DESTINATION lib/zeroplan)
endfunction()
file(GLOB sm70_cuda_sources CONFIGURE_DEPENDS device/cuda/*.cpp communicator/devices/*.cpp)
zeroplan_add_sm70_module(cuda ${sm70_cuda_sources} ${sm70_objects})
file(GLOB sm70_nccl_sources CONFIGURE_DEPENDS communicator/nccl/*.cpp)
zeroplan_add_sm70_module(nccl ${sm70_nccl_sources} device/cuda/errors.cpp)
