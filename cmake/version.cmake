# The version and the commit, compiled into the module `version`. The commit is asked for at each build, in
# script mode, and the file is rewritten only when the answer changed.
if(CMAKE_SCRIPT_MODE_FILE)
  set(commit "unknown")
  execute_process(COMMAND git -C "${SOURCE}" describe --always --dirty --abbrev=10
    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(commit "${described}")
  endif()
  configure_file("${SOURCE}/src/base/version/version.cpp.in" "${OUTPUT}" @ONLY)
  return()
endif()

set(version_source "${CMAKE_BINARY_DIR}/generated/version.cpp")
add_custom_target(version_now BYPRODUCTS "${version_source}"
  COMMAND "${CMAKE_COMMAND}" -DSOURCE=${CMAKE_SOURCE_DIR} -DOUTPUT=${version_source} -DVERSION=${PROJECT_VERSION}
          -P "${CMAKE_CURRENT_LIST_FILE}"
  COMMENT "Reading the commit" VERBATIM)
add_library(version_object STATIC "${version_source}")
add_dependencies(version_object version_now)
target_link_libraries(version_object PRIVATE tutti_flags)
target_include_directories(version_object PRIVATE "${CMAKE_BINARY_DIR}/include/tutti_base_version")
target_link_libraries(tutti_base_version INTERFACE version_object)
