# Compiler, linker and warnings for our own code. Everything here is inherited by the targets of module.cmake
# through tutti_flags, so that third-party targets keep their own flags.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
# No link-time optimisation: g++ 12 takes the frames of coroutines in different files for one another under it, mold
# aborts, and the start-up time did not change where it worked.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# Daily work: compiled quickly, and fast enough for the tests. Kernels are at full speed everywhere.
set(CMAKE_CXX_FLAGS_DEV "-O1 -DNDEBUG")

find_program(TUTTI_CCACHE ccache)
if(TUTTI_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${TUTTI_CCACHE}")
endif()

find_program(TUTTI_MOLD mold)
if(TUTTI_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(tutti_flags INTERFACE)
target_compile_definitions(tutti_flags INTERFACE _GLIBCXX_ASSERTIONS)
target_compile_options(tutti_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow=local -Wconversion -Wsign-conversion -Wold-style-cast -Wnon-virtual-dtor
  -Woverloaded-virtual -Wduplicated-cond -Wlogical-op -Wformat=2 -Wundef -Wsuggest-override
  -Wimplicit-fallthrough=5
  -Wno-subobject-linkage  # a batch (module.cmake) has its sources as headers, which the compiler takes for shared ones
  -Wno-restrict  # g++ 12 reports std::string operations that are fine
  -Wno-missing-field-initializers  # options structs are set by name, the rest keeps its default
  # Paths in debug info and check messages start at the repository, wherever it was cloned.
  "-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=")

# Workers are built where they run, by compilers that nobody here has seen: what those warn of stops nobody.
if(NOT TUTTI_WORKERS_ONLY)
  target_compile_options(tutti_flags INTERFACE -Werror)
endif()

if(TUTTI_FUZZ)
  # clang lacks some of g++'s warnings; g++ has checked the code already.
  add_compile_options(-fsanitize=fuzzer-no-link -w)
endif()

if(TUTTI_SANITIZE)
  add_compile_options(-fsanitize=${TUTTI_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TUTTI_SANITIZE})
  if(TUTTI_FUZZ)
    # What this one lays before functions clang 14 cannot lay before coroutines.
    add_compile_options(-fno-sanitize=function)
  endif()
endif()

# Optimisation and the sanitizers' instrumentation hide from g++ 12 that a std::variant or std::optional reads only what it holds.
if(TUTTI_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(tutti_flags INTERFACE -Wno-maybe-uninitialized)
endif()
