# The libraries tutti stands on, all of them distribution packages (tools/packages.txt lists them).
# Modules name these targets in NEEDS.

# tutti-worker's only dependency. Debian's libtorch is found as it is; a Python wheel tells where its CMake files lie.
if(NOT TUTTI_SANITIZE STREQUAL "thread")
  find_package(Torch QUIET)
  if(NOT Torch_FOUND)
    execute_process(COMMAND python3 -c "import torch; print(torch.utils.cmake_prefix_path)"
      OUTPUT_VARIABLE torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(torch_prefix)
      find_package(Torch QUIET PATHS "${torch_prefix}")
    endif()
  endif()
  if(Torch_FOUND)
    add_library(libtorch INTERFACE)
    target_include_directories(libtorch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
    target_link_libraries(libtorch INTERFACE ${TORCH_LIBRARIES})
    separate_arguments(torch_flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
    target_compile_options(libtorch INTERFACE ${torch_flags})
    # Sources include the operators that they use, of thousands.
    target_compile_definitions(libtorch INTERFACE AT_PER_OPERATOR_HEADERS)
  endif()
endif()

if(TUTTI_WORKERS_ONLY)
  if(NOT Torch_FOUND)
    message(FATAL_ERROR "TUTTI_WORKERS_ONLY needs libtorch, and none was found.\n"
      "Install libtorch-dev, or pass -DCMAKE_PREFIX_PATH=DIR with the folder that holds TorchConfig.cmake.")
  endif()
  return()
endif()
if(NOT Torch_FOUND)
  message(STATUS "libtorch: not found, tutti-worker is not built")
endif()

# `tutti` is one file that runs on any server with a glibc, so what it uses is linked into it. Debian ships fmt
# and spdlog as shared libraries only; both can be compiled in: fmt once, here, and spdlog inside src/base/log.
add_library(fmt_static STATIC "${CMAKE_CURRENT_LIST_DIR}/fmt.cpp")

find_library(yaml_cpp_archive NAMES libyaml-cpp.a REQUIRED)
add_library(yaml_cpp INTERFACE)
target_link_libraries(yaml_cpp INTERFACE "${yaml_cpp_archive}")

find_library(zlib_archive NAMES libz.a REQUIRED)
add_library(zlib INTERFACE)
target_link_libraries(zlib INTERFACE "${zlib_archive}")

find_path(json_include nlohmann/json.hpp REQUIRED)

find_package(GTest REQUIRED)
# The peer that our own hashes are compared with.
find_path(xxhash_include xxhash.h REQUIRED)
add_library(xxhash INTERFACE)
target_include_directories(xxhash SYSTEM INTERFACE "${xxhash_include}")

find_library(sqlite3_archive NAMES libsqlite3.a REQUIRED)
add_library(sqlite3 INTERFACE)
target_link_libraries(sqlite3 INTERFACE "${sqlite3_archive}" ${CMAKE_DL_LIBS})

find_library(protobuf_archive NAMES libprotobuf.a REQUIRED)
find_program(PROTOC protoc REQUIRED)
add_library(protobuf_runtime INTERFACE)
target_link_libraries(protobuf_runtime INTERFACE "${protobuf_archive}" zlib)

find_library(ssl_archive NAMES libssl.a REQUIRED)
find_library(crypto_archive NAMES libcrypto.a REQUIRED)
add_library(openssl INTERFACE)
target_link_libraries(openssl INTERFACE "${ssl_archive}" "${crypto_archive}" ${CMAKE_DL_LIBS})

# Boost.Asio, Beast and URL are headers only; what of them is no template is compiled once, here.
find_path(boost_headers boost/beast/version.hpp REQUIRED)
add_library(boost_net STATIC "${CMAKE_CURRENT_LIST_DIR}/boost.cpp")
target_include_directories(boost_net SYSTEM PUBLIC "${boost_headers}")
target_compile_definitions(boost_net PUBLIC BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_DISABLE_BOOST_ARRAY
  BOOST_ASIO_SEPARATE_COMPILATION BOOST_BEAST_SEPARATE_COMPILATION)
target_compile_options(boost_net PRIVATE -w)
if(TUTTI_SANITIZE STREQUAL "thread")
  # The thread sanitizer does not understand fences, and g++ refuses them; Asio's locks do without.
  target_compile_definitions(boost_net PUBLIC BOOST_ASIO_DISABLE_FENCED_BLOCK)
endif()
target_link_libraries(boost_net PUBLIC openssl)

# Only hwloc's types: its archive needs libudev, which not every server has, so the library is opened at run time.
find_path(hwloc_include hwloc.h REQUIRED)
add_library(hwloc_headers INTERFACE)
target_include_directories(hwloc_headers SYSTEM INTERFACE "${hwloc_include}")
target_link_libraries(hwloc_headers INTERFACE ${CMAKE_DL_LIBS})

# proto/ is the one schema: its generated code, with protobuf's runtime.
set(proto_out "${CMAKE_BINARY_DIR}/generated/proto")
file(MAKE_DIRECTORY "${proto_out}")
set(proto_names stored agents tutti)
list(TRANSFORM proto_names PREPEND "${CMAKE_SOURCE_DIR}/proto/" OUTPUT_VARIABLE proto_sources)
list(TRANSFORM proto_sources APPEND ".proto")
list(TRANSFORM proto_names PREPEND "${proto_out}/" OUTPUT_VARIABLE proto_made)
list(TRANSFORM proto_made APPEND ".pb.h" OUTPUT_VARIABLE proto_headers)
list(TRANSFORM proto_made APPEND ".pb.cc")
add_custom_command(OUTPUT ${proto_made} ${proto_headers}
  COMMAND "${PROTOC}" "--proto_path=${CMAKE_SOURCE_DIR}/proto" "--cpp_out=${proto_out}" ${proto_sources}
  DEPENDS ${proto_sources} COMMENT "protoc proto/*.proto" VERBATIM)
add_library(tutti_proto STATIC ${proto_made} ${proto_headers})
target_compile_options(tutti_proto PRIVATE -w)
target_include_directories(tutti_proto SYSTEM PUBLIC "${CMAKE_BINARY_DIR}/generated")
target_link_libraries(tutti_proto PUBLIC protobuf_runtime)
