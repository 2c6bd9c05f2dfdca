# CUDA C++ for the workers. nvcc is called as a tool beside the C++ compiler: wherever it is, the kernels are compiled,
# so that they stay sound. The trainer's are linked where libtorch has CUDA too, the engine's wherever the toolkit is.
if(CMAKE_CUDA_COMPILER)
  set(TUTTI_NVCC "${CMAKE_CUDA_COMPILER}")
else()
  find_program(TUTTI_NVCC nvcc HINTS /usr/local/cuda/bin)
endif()
set(TUTTI_CUDA OFF)
set(TUTTI_CUDART "")  # what the engine links; empty: it is built without CUDA
if(TUTTI_NVCC)
  cmake_path(GET TUTTI_NVCC PARENT_PATH nvcc_folder)
  list(APPEND CMAKE_PREFIX_PATH "${nvcc_folder}/..")
  find_package(CUDAToolkit QUIET)
endif()
if(TUTTI_NVCC AND CUDAToolkit_FOUND)
  find_file(cublas_lt_header cublasLt.h PATHS ${CUDAToolkit_INCLUDE_DIRS} NO_DEFAULT_PATH)
  if(TARGET torch_cuda)
    set(TUTTI_CUDA ON)
    set(TUTTI_CUDART CUDA::cudart)  # libtorch's: a program has one
  elseif(NOT TUTTI_SANITIZE)
    set(TUTTI_CUDART CUDA::cudart_static)
  endif()
  if(NOT cublas_lt_header OR NOT TARGET "${TUTTI_CUDART}")
    set(TUTTI_CUDART "")
  endif()
endif()
message(STATUS "CUDA: nvcc is '${TUTTI_NVCC}', tutti-worker trains on GPUs: ${TUTTI_CUDA}, serves on them with: ${TUTTI_CUDART}")

set(nvcc_flags -O3 -std=c++17 -Werror all-warnings -Xcompiler -fPIC,-Wall,-Wextra
  -gencode arch=compute_90,code=compute_90)
if(TUTTI_CUDA)
  # Machine code for Ampere and Hopper, with what Hopper alone has; later GPUs compile from what is common to them. Where
  # libtorch has no CUDA, machine code is left out, and what Hopper alone has is compiled to stay sound, and not used.
  list(APPEND nvcc_flags -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a -DTUTTI_HOPPER)
else()
  list(APPEND nvcc_flags -gencode arch=compute_90a,code=compute_90a)
endif()

# tutti_cuda(LIBRARY MODULE): the .cu files of a module's folder as a library. The module's headers are on the path.
function(tutti_cuda library name)
  string(REPLACE "/" "_" target "tutti_${name}")
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/${name}/*.cu")
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${library}.dir")
  file(MAKE_DIRECTORY "${folder}")
  set(objects "")
  foreach(source IN LISTS sources)
    cmake_path(GET source FILENAME file)
    set(object "${folder}/${file}.o")
    add_custom_command(OUTPUT "${object}"
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} "${TUTTI_NVCC}" ${nvcc_flags} "-I${CMAKE_BINARY_DIR}/include/${target}" -MMD -MF "${object}.d"
              -c "${source}" -o "${object}"
      DEPENDS "${source}" DEPFILE "${object}.d" COMMENT "nvcc ${name}/${file}" VERBATIM)
    list(APPEND objects "${object}")
  endforeach()
  add_library(${library} STATIC ${objects})
  set_target_properties(${library} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()
