# NVIDIA's compiler, where the module for GPUs is asked for (executor/CMakeLists.txt). Nobody who plans needs a toolkit, and
# kernels take minutes to compile; tests/ compiles the same sources for an emulated GPU.
set(ZEROPLAN_CUDA OFF CACHE STRING "Build the module for NVIDIA's GPUs: OFF, ON, or AUTO where nvcc is found")
set(ZEROPLAN_HAS_CUDA OFF)
if(ZEROPLAN_CUDA STREQUAL "AUTO")
  include(CheckLanguage)
  set(CMAKE_CUDA_ARCHITECTURES 80)  # what the compiler is tried with
  check_language(CUDA)
endif()
if(ZEROPLAN_CUDA STREQUAL "ON" OR (ZEROPLAN_CUDA STREQUAL "AUTO" AND CMAKE_CUDA_COMPILER))
  set(CMAKE_CUDA_ARCHITECTURES 80;90;100;120)
  set(CMAKE_CUDA_STANDARD 20)
  enable_language(CUDA)  # CMake wants it where all that uses it is below
  foreach(kind IN ITEMS STANDARD EXTENSION)
    set(CMAKE_CUDA20_${kind}_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know that nvcc has it
  endforeach()
  set(ZEROPLAN_HAS_CUDA ON)
endif()
