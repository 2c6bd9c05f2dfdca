# tutti_room(NAME [USES rooms…])
#
# A folder of modules with one purpose, declared in its own CMakeLists.txt. tools/tidy reads USES: which rooms the
# modules of this one may use.
function(tutti_room name)
  add_subdirectory(${name})
endfunction()

# tutti_module(NAME LAYER layer [USES modules…] [NEEDS targets…] [TESTS_USE modules…] [TESTS_NEED targets…]
#              [PROGRAM name] [DIR folder])
#
# One folder, one library. Of the folder's sources, `x_test.cpp` go into the test program NAME_test, each `x_fuzz.cpp`
# is a fuzz target fuzz_x, `main.cpp` goes into the program PROGRAM, all others into the library. USES are modules of this
# tree, NEEDS are targets of dependencies.cmake, TESTS_USE and TESTS_NEED are the same for the tests alone (and TESTS_USE
# for the fuzz targets). tools/tidy
# reads these calls too: LAYER and USES are the declared architecture.
#
# A module's headers are reached as "NAME/x.hpp", through a folder of links that only the modules which declare
# the use have on their include path: an undeclared include does not compile.
function(tutti_module name)
  cmake_parse_arguments(PARSE_ARGV 1 module "" "LAYER;PROGRAM;DIR" "USES;NEEDS;TESTS_USE;TESTS_NEED")
  if(NOT module_DIR)
    set(module_DIR "${CMAKE_SOURCE_DIR}/src/${name}")
  endif()
  string(REPLACE "/" "_" target "tutti_${name}")
  tutti_link_headers(${name} ${target} "${module_DIR}")

  file(GLOB sources CONFIGURE_DEPENDS "${module_DIR}/*.cpp")
  set(tests ${sources})
  set(fuzzers ${sources})
  set(mains ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cpp$")
  list(FILTER mains INCLUDE REGEX "/main\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "(_test|_fuzz|/main)\\.cpp$")

  set(uses ${module_USES})
  list(TRANSFORM uses REPLACE "/" "_")
  list(TRANSFORM uses PREPEND "tutti_")
  if(sources)
    add_library(${target} STATIC ${sources})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE tutti_flags PRIVATE ${module_NEEDS})
    tutti_batch(${target} "${sources}" units)
    # torch's headers parse under clang 14 only as C++17, which our sources are not.
    if(NOT module_LAYER STREQUAL "workers")
      tutti_lint(${target} "${units}")
    endif()
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
    target_link_libraries(${target} INTERFACE ${module_NEEDS})
  endif()
  target_include_directories(${target} ${scope} "${CMAKE_BINARY_DIR}/include/${target}")
  target_link_libraries(${target} ${scope} ${uses})

  if(module_PROGRAM)
    add_executable(${module_PROGRAM} ${mains})
    target_link_libraries(${module_PROGRAM} PRIVATE tutti_flags ${target} ${module_NEEDS})
    if(NOT module_LAYER STREQUAL "workers" AND NOT TUTTI_SANITIZE)
      target_link_options(${module_PROGRAM} PRIVATE -static-libstdc++ -static-libgcc)
    endif()
  endif()
  list(TRANSFORM module_TESTS_USE REPLACE "/" "_")
  list(TRANSFORM module_TESTS_USE PREPEND "tutti_")
  if(NOT TUTTI_WORKERS_ONLY)
    foreach(fuzzer IN LISTS fuzzers)
      tutti_fuzz(${target} ${fuzzer} ${module_TESTS_USE})
    endforeach()
  endif()
  if(tests AND NOT TUTTI_WORKERS_ONLY)
    string(REPLACE "/" "_" test_name "${name}_test")
    tutti_test(${test_name} SOURCES ${tests} USES ${target} ${module_TESTS_USE} ${module_NEEDS} ${module_TESTS_NEED})
  endif()
endfunction()

# A parser of bytes from outside. With TUTTI_FUZZ libFuzzer drives it; else its corpus is run as a test.
function(tutti_fuzz target source)
  cmake_path(GET source STEM stem)
  string(REGEX REPLACE "_fuzz$" "" name "${stem}")
  add_executable(fuzz_${name} ${source})
  target_link_libraries(fuzz_${name} PRIVATE tutti_flags ${target} ${ARGN})
  if(TUTTI_FUZZ)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  else()
    target_link_libraries(fuzz_${name} PRIVATE tutti_corpus)
    add_test(NAME "fuzz_${name}: the corpus" COMMAND fuzz_${name} "${CMAKE_SOURCE_DIR}/tests/corpus/${name}")
  endif()
endfunction()

# A GoogleTest program; each of its cases is a test of ctest.
function(tutti_test name)
  cmake_parse_arguments(PARSE_ARGV 1 test "" "" "SOURCES;USES")
  add_executable(${name} ${test_SOURCES})
  tutti_batch(${name} "${test_SOURCES}" units)
  target_link_libraries(${name} PRIVATE tutti_flags ${test_USES} GTest::gtest_main)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
    TEST_PREFIX "${name}: " PROPERTIES TIMEOUT 300)
endfunction()

# tutti_tests(NAMES names… PROPERTIES properties…): properties of single cases, which are known only when the tests are run. The label
# `long` is for what takes more than some five seconds: `./dev test` runs it from nothing, with --all and in CI.
function(tutti_tests)
  cmake_parse_arguments(PARSE_ARGV 0 tests "" "" "NAMES;PROPERTIES")
  list(JOIN tests_NAMES "\" \"" names)
  list(JOIN tests_PROPERTIES " " properties)
  string(SHA1 file "${names} ${properties}")
  set(file "${CMAKE_CURRENT_BINARY_DIR}/tests-${file}.cmake")
  file(WRITE "${file}" "set_tests_properties(\"${names}\" PROPERTIES ${properties})\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${file}")
endfunction()

# build/PRESET/include/TARGET/NAME/x.hpp -> src/NAME/x.hpp, one link a header, so that a folder inside a
# module's folder stays a module of its own.
function(tutti_link_headers name target dir)
  set(root "${CMAKE_BINARY_DIR}/include/${target}")
  file(GLOB headers CONFIGURE_DEPENDS "${dir}/*.hpp")
  file(REMOVE_RECURSE "${root}")
  file(MAKE_DIRECTORY "${root}/${name}")
  foreach(header IN LISTS headers)
    cmake_path(GET header FILENAME file)
    file(CREATE_LINK "${header}" "${root}/${name}/${file}" SYMBOLIC)
  endforeach()
endfunction()

# Sources are compiled in batches of about this size, each as one unit: what they include is read once, and the
# templates that they share are made once. What has flags of its own stays alone. -DTUTTI_BATCH_BYTES=0 compiles every
# source by itself.
set(TUTTI_BATCH_BYTES 48000 CACHE STRING "Bytes of source that are compiled as one unit, 0 for one source a unit")
# UNITS becomes the list of what is compiled, as paths below the target's folder of objects.
function(tutti_batch target sources units)
  set(batched "")
  set(filled 0)
  set(number 0)
  foreach(source IN LISTS sources)
    cmake_path(GET source FILENAME file)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" OUTPUT_VARIABLE path)
    if(TUTTI_BATCH_BYTES EQUAL 0 OR file MATCHES "^kernels")
      list(APPEND batched "${path}")
      continue()
    endif()
    file(SIZE "${source}" size)
    math(EXPR filled "${filled} + ${size}")
    if(filled GREATER TUTTI_BATCH_BYTES AND NOT filled EQUAL size)
      set(filled ${size})
      math(EXPR number "${number} + 1")
    endif()
    set_property(SOURCE "${source}" PROPERTY UNITY_GROUP ${number})
    list(APPEND batched "Unity/unity_${number}_cxx.cxx")
  endforeach()
  if(NOT TUTTI_BATCH_BYTES EQUAL 0)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  endif()
  list(REMOVE_DUPLICATES batched)
  set(${units} "${batched}" PARENT_SCOPE)
endfunction()

# clang-tidy over a target's units, as files of the build: the stamp of a unit depends on its object, which Ninja
# rebuilds exactly when something that the unit includes has changed. `./dev lint` builds them all.
find_program(TUTTI_CLANG_TIDY clang-tidy)
if(NOT TARGET lint)
  add_custom_target(lint)
endif()
function(tutti_lint target units)
  if(NOT TUTTI_CLANG_TIDY)
    return()
  endif()
  set(objects "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir")
  set(stamps "")
  foreach(unit IN LISTS units)
    if(unit MATCHES "^Unity/")
      set(source "${objects}/${unit}")
    else()
      set(source "${CMAKE_CURRENT_SOURCE_DIR}/${unit}")
    endif()
    set(stamp "${CMAKE_CURRENT_BINARY_DIR}/lint/${target}/${unit}.ok")
    cmake_path(GET stamp PARENT_PATH stamp_dir)
    file(MAKE_DIRECTORY "${stamp_dir}")
    add_custom_command(OUTPUT "${stamp}"
      COMMAND "${TUTTI_CLANG_TIDY}" --quiet -p "${CMAKE_BINARY_DIR}" "${source}"
      COMMAND "${CMAKE_COMMAND}" -E touch "${stamp}"
      DEPENDS "${objects}/${unit}${CMAKE_CXX_OUTPUT_EXTENSION}" "${CMAKE_SOURCE_DIR}/.clang-tidy"
      COMMENT "clang-tidy ${target} ${unit}" VERBATIM)
    list(APPEND stamps "${stamp}")
  endforeach()
  add_custom_target(lint_${target} DEPENDS ${stamps})
  add_dependencies(lint lint_${target})
endfunction()

include(GoogleTest)
