# One helper per kind of target. A folder under lib/ is one library; its tests and benchmarks stand beside its sources.
include(GoogleTest)

# Every program (fusionllm_program), without tests and benchmarks.
add_custom_target(programs)

# Every libFuzzer program (fusionllm_fuzzer); they need clang.
if(FUSIONLLM_FUZZ)
  add_custom_target(fuzzers)
endif()

# An empty main, linked by fusionllm_link_test.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/empty_main.cc CONTENT "int main() { return 0; }\n")
add_library(empty_main OBJECT ${CMAKE_BINARY_DIR}/generated/empty_main.cc)

# fusionllm_link_test(library): all of the library's objects and what it declares in DEPENDS, nothing else, must link.
# So a library that calls code it does not declare fails the build even if every present user happens to bring that code along.
function(fusionllm_link_test library)
  add_executable(${library}_link_test $<TARGET_OBJECTS:empty_main>)
  target_link_libraries(${library}_link_test PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,${library}>)
  set_target_properties(${library}_link_test PROPERTIES LINKER_LANGUAGE CXX RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/link_tests)
endfunction()

# Adds headers to a target. That they are self-contained is shown by the source of the same name, which includes its header before anything
# else; headers without such a source are compiled alone by the target all_verify_interface_header_sets. Sources are looked at when this is
# configured, which `make verify` does each time.
function(fusionllm_headers target scope)
  set(shown "")
  set(alone "")
  foreach(header IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH header NORMALIZE)
    cmake_path(REPLACE_EXTENSION header LAST_ONLY .cc OUTPUT_VARIABLE source)
    cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE name)
    set(first "")
    if(EXISTS ${source})
      file(STRINGS ${source} first REGEX "^#include" LIMIT_COUNT 1)
    endif()
    if(first STREQUAL "#include \"${name}\"")
      list(APPEND shown ${header})
    else()
      list(APPEND alone ${header})
    endif()
  endforeach()
  if(shown)
    target_sources(${target} ${scope} FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR} FILES ${shown})
  endif()
  if(alone)
    target_sources(${target} ${scope} FILE_SET alone TYPE HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR} FILES ${alone})
    set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON INTERFACE_HEADER_SETS_TO_VERIFY alone)
  endif()
endfunction()

# fusionllm_library(NAME n SOURCES a.cc ... HEADERS a.h ... DEPENDS targets ...): a library with sources gets a link test, unless it is of tests,
# below tests/ or a folder testing/.
function(fusionllm_library)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;HEADERS;DEPENDS" ${ARGN})
  if(ARG_SOURCES)
    add_library(${ARG_NAME} STATIC ${ARG_SOURCES})
    target_link_libraries(${ARG_NAME} PUBLIC ${ARG_DEPENDS})
    fusionllm_headers(${ARG_NAME} PUBLIC ${ARG_HEADERS})
    list(GET ARG_SOURCES 0 source)
    cmake_path(ABSOLUTE_PATH source)
    if(NOT source MATCHES "/testing/|^${CMAKE_SOURCE_DIR}/tests/")
      fusionllm_link_test(${ARG_NAME})
    endif()
  else()
    add_library(${ARG_NAME} INTERFACE)
    target_link_libraries(${ARG_NAME} INTERFACE ${ARG_DEPENDS})
    fusionllm_headers(${ARG_NAME} INTERFACE ${ARG_HEADERS})
  endif()
endfunction()

# What tests do takes its time in the libraries: their own code is compiled in a sixth less time than at -O2.
set(FUSIONLLM_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)

# What every test includes, compiled once. Only that: with more in it a test might miss an include of its own. And the main of every test program.
function(fusionllm_test_headers)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/test_headers.cc CONTENT "")  # leaves it alone where it is there: all tests depend on it
  add_library(test_headers OBJECT ${CMAKE_BINARY_DIR}/test_headers.cc)
  target_link_libraries(test_headers PRIVATE GTest::gmock GTest::gtest)
  target_compile_options(test_headers PRIVATE -pthread ${FUSIONLLM_TEST_OPTIONS})
  target_precompile_headers(test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
  add_library(test_main OBJECT ${CMAKE_SOURCE_DIR}/lib/base/testing/test_main.cc)
  target_link_libraries(test_main PUBLIC GTest::gmock GTest::gtest)
endfunction()

# The test program of a folder: lib/kube/watch -> kube_watch_tests.
function(fusionllm_test_program_name result)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE name)
  string(REGEX REPLACE "^(lib|tests)/" "" name ${name})
  string(REPLACE / _ name ${name})
  set(${result} ${name}_tests PARENT_SCOPE)
endfunction()

# fusionllm_test(NAME foo_test [PROGRAM name] [SOURCES ...] DEPENDS ... [DEFINES A=b ...] [NEEDS targets that it runs or loads ...]
#                [TIMEOUT seconds] [LABELS ...]): SOURCES defaults to NAME.cc, LABELS to unit. Labels: unit, slow (20 s and more on two slow
#                cores), integration (real programs), chart (needs helm).
# The tests of a folder are one program (PROGRAM: another one), for most of the time of a build goes to what each object reads and each program
# links. ctest knows those of NAME by that name: it starts the program for the suites that stand in its *_test.cc (lib/base/testing/test_main.cc).
function(fusionllm_test)
  cmake_parse_arguments(ARG "" "NAME;PROGRAM;TIMEOUT" "SOURCES;DEPENDS;DEFINES;NEEDS;LABELS" ${ARGN})
  if(NOT ARG_SOURCES)
    set(ARG_SOURCES ${ARG_NAME}.cc)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(FUSIONLLM_SANITIZE)
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
  endif()
  if(NOT ARG_PROGRAM)
    fusionllm_test_program_name(ARG_PROGRAM)
  endif()
  if(NOT TARGET ${ARG_PROGRAM})
    fusionllm_test_program(${ARG_PROGRAM})
  endif()
  target_sources(${ARG_PROGRAM} PRIVATE ${ARG_SOURCES})
  target_link_libraries(${ARG_PROGRAM} PRIVATE ${ARG_DEPENDS})
  target_compile_definitions(${ARG_PROGRAM} PRIVATE ${ARG_DEFINES})
  if(ARG_NEEDS)
    add_dependencies(${ARG_PROGRAM} ${ARG_NEEDS})
  endif()
  # One ctest entry, not one per case: starting a process costs more than most cases.
  set(files)
  foreach(source IN LISTS ARG_SOURCES)
    cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE path)
    set_property(GLOBAL APPEND PROPERTY FUSIONLLM_TEST_SOURCES ${path})
    if(path MATCHES "_test\\.cc$")
      cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
      list(APPEND files --test_file=${path})
    endif()
  endforeach()
  set_property(TARGET ${ARG_PROGRAM} APPEND PROPERTY FUSIONLLM_TEST_FILES ${files})
  fusionllm_add_test(${ARG_NAME} ${ARG_PROGRAM} "${ARG_TIMEOUT}" "${ARG_LABELS}" ${files})
endfunction()

# FUSIONLLM_SOURCE_DIR finds committed test data.
function(fusionllm_add_test name program timeout labels)
  add_test(NAME ${name} COMMAND ${program} ${ARGN} COMMAND_EXPAND_LISTS)
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} LABELS "${labels}"
    ENVIRONMENT "FUSIONLLM_SOURCE_DIR=${CMAKE_SOURCE_DIR};FUSIONLLM_BIN_DIR=${CMAKE_BINARY_DIR}/bin;TSAN_OPTIONS=ignore_noninstrumented_modules=1")
endfunction()

# An executable in tests/ with the main of all tests. Every case of it is run under one name of ctest: NAME_files_test tells what is not.
function(fusionllm_test_program name)
  add_executable(${name})
  target_link_libraries(${name} PRIVATE test_main GTest::gmock GTest::gtest)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  # GoogleTest is read once for all tests. -pthread: gRPC brings it along, and all must be compiled alike. Behind a precompiled header gcc 12
  # also warns about its own string, where something is added to a std::string(n, c).
  target_compile_options(${name} PRIVATE -pthread ${FUSIONLLM_TEST_OPTIONS})
  target_precompile_headers(${name} REUSE_FROM test_headers)
  string(REGEX REPLACE "_tests$" "" stem ${name})
  fusionllm_add_test(${stem}_files_test ${name} 120 unit --check_test_files "$<TARGET_PROPERTY:${name},FUSIONLLM_TEST_FILES>")
endfunction()

# fusionllm_benchmark(NAME foo_bench DEPENDS ...): Google Benchmark from NAME.cc, run by `make bench`, never by ctest.
function(fusionllm_benchmark)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_SOURCES)
    set(ARG_SOURCES ${ARG_NAME}.cc)
  endif()
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPENDS} benchmark::benchmark_main)
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/benchmarks)
endfunction()

# fusionllm_fuzzer(NAME foo_fuzz [SOURCE folder/foo_fuzz.cc] DEPENDS ...): a decoder under random damage, by default NAME.cc (lib/base/testing/fuzz.h). Makes the test foo_fuzz_test and,
# with FUSIONLLM_FUZZ, the libFuzzer program fuzzers/foo_fuzz.
function(fusionllm_fuzzer)
  cmake_parse_arguments(ARG "" "NAME;SOURCE" "DEPENDS" ${ARGN})
  if(NOT ARG_SOURCE)
    set(ARG_SOURCE ${ARG_NAME}.cc)
  endif()
  add_executable(${ARG_NAME}_test ${ARG_SOURCE})
  target_link_libraries(${ARG_NAME}_test PRIVATE ${ARG_DEPENDS} fuzz_driver)
  set_target_properties(${ARG_NAME}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  fusionllm_add_test(${ARG_NAME}_test ${ARG_NAME}_test 120 unit)
  set_property(GLOBAL APPEND PROPERTY FUSIONLLM_TEST_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SOURCE})
  if(FUSIONLLM_FUZZ)
    add_executable(${ARG_NAME} ${ARG_SOURCE})
    target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPENDS} libfuzzer_driver)
    target_link_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzzers)
    add_dependencies(fuzzers ${ARG_NAME})
  endif()
endfunction()

# fusionllm_program(NAME fusion-foo SOURCES ... DEPENDS ...): a binary in bin/.
function(fusionllm_program)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPENDS})
  add_dependencies(programs ${ARG_NAME})
endfunction()

# fusionllm_proto(NAME n PROTOS a.proto ... [DEPENDS ...]): messages and gRPC stubs; include as "proto/fusionllm/v1/a.pb.h".
function(fusionllm_proto)
  cmake_parse_arguments(ARG "" "NAME" "PROTOS;DEPENDS" ${ARGN})
  set(generated)
  foreach(proto IN LISTS ARG_PROTOS)
    file(RELATIVE_PATH relative ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${proto})
    string(REGEX REPLACE "\\.proto$" "" stem ${relative})
    set(outputs ${CMAKE_BINARY_DIR}/${stem}.pb.cc ${CMAKE_BINARY_DIR}/${stem}.pb.h ${CMAKE_BINARY_DIR}/${stem}.grpc.pb.cc ${CMAKE_BINARY_DIR}/${stem}.grpc.pb.h)
    add_custom_command(
      OUTPUT ${outputs}
      COMMAND protobuf::protoc -I ${CMAKE_SOURCE_DIR} --cpp_out=${CMAKE_BINARY_DIR} --grpc_out=${CMAKE_BINARY_DIR}
              --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN} ${relative}
      WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
      DEPENDS ${CMAKE_SOURCE_DIR}/${relative} VERBATIM)
    list(APPEND generated ${outputs})
  endforeach()
  add_library(${ARG_NAME} STATIC ${generated})
  target_link_libraries(${ARG_NAME} PUBLIC gRPC::grpc++ protobuf::libprotobuf ${ARG_DEPENDS})
  target_compile_options(${ARG_NAME} PRIVATE -w)
  set_target_properties(${ARG_NAME} PROPERTIES UNITY_BUILD OFF)
endfunction()

# A *_test.cc or *_fuzz.cc that no target names would silently never run: refuse to configure.
function(fusionllm_check_registered_tests)
  get_property(registered GLOBAL PROPERTY FUSIONLLM_TEST_SOURCES)
  foreach(folder IN LISTS FUSIONLLM_FOLDERS)
    file(GLOB_RECURSE found ${CMAKE_SOURCE_DIR}/${folder}/*_test.cc ${CMAKE_SOURCE_DIR}/${folder}/*_fuzz.cc)
    foreach(source IN LISTS found)
      if(NOT source IN_LIST registered)
        message(FATAL_ERROR "${source} is in no fusionllm_test() or fusionllm_fuzzer()")
      endif()
    endforeach()
  endforeach()
endfunction()
