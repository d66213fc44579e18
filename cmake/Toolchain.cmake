# Compiler flags that hold for every target. Warnings are errors.
option(FUSIONLLM_WERROR "Treat warnings as errors" ON)
set(FUSIONLLM_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize= (address,undefined or thread)")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${CCACHE_PROGRAM})
  # Else it takes nothing from its cache that includes a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()
find_program(LLD_PROGRAM ld.lld)
if(LLD_PROGRAM)
  add_link_options(-fuse-ld=lld)
endif()

set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# No contraction into fused multiply-adds behind the author's back: the same source must give the same bits in every translation unit.
# nvcc's own half of a .cu file has other flags (cmake/Cuda.cmake).
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wno-unused-parameter;-Wno-missing-field-initializers;-ffp-contract=off;-fno-math-errno>")
if(CMAKE_UNITY_BUILD)
  # gcc takes each source of a batch for a header, and warns of types in it that have members of an unnamed namespace.
  add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>")
endif()
if(FUSIONLLM_WERROR)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Werror>")
endif()
if(FUSIONLLM_SANITIZE)
  add_compile_options(-fsanitize=${FUSIONLLM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${FUSIONLLM_SANITIZE})
endif()
option(FUSIONLLM_FUZZ "Build libFuzzer programs; needs clang" OFF)
if(FUSIONLLM_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)  # coverage of every library, for the fuzzers to follow
endif()
add_link_options(-Wl,--as-needed)
include_directories(${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
