# The CUDA back end (lib/kernels/cuda) where it is asked for: -DFUSIONLLM_CUDA=ON and a toolkit, in CUDACXX, in PATH, or as `make deps-cuda` makes
# it. Only the runtime is linked, and statically: programs start on machines without a driver, and load cuBLASLt and cuDNN when they first
# multiply or convolve. Of cuDNN 9 the headers must be there: a build without them would compute convolutions by plain gathers, wherever it
# runs, and none of its users could help it.
option(FUSIONLLM_CUDA "Build the CUDA back end; needs nvcc (make deps-cuda)" OFF)
# fusionllm_opens_cuda_libraries(TEST...): of this folder. Libraries of the toolkit's wheels are where no system looks for them.
function(fusionllm_opens_cuda_libraries)
  if(FUSIONLLM_CUDA)
    set_tests_properties(${ARGN} PROPERTIES ENVIRONMENT_MODIFICATION
      "LD_LIBRARY_PATH=path_list_append:${CUDNN_INCLUDE_DIR}/../lib;LD_LIBRARY_PATH=path_list_append:${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES}/../lib")
  endif()
endfunction()
if(NOT FUSIONLLM_CUDA)
  return()
endif()

include(CheckLanguage)
# A100 and H100/H200 as machine code; what is newer compiles the last one's PTX when it starts.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "FUSIONLLM_CUDA is ON and there is no CUDA compiler: run `make deps-cuda` and `make cuda`, or set CUDACXX to nvcc, or configure with -DFUSIONLLM_CUDA=OFF")
endif()
enable_language(CUDA)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 has not heard of it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
if(CCACHE_PROGRAM)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${CCACHE_PROGRAM})
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wno-unknown-pragmas,-ffp-contract=off;-Wno-deprecated-gpu-targets>")
if(FUSIONLLM_WERROR)
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
endif()
# Where the system has them, or beside the toolkit's folder, as wheels lie.
get_filename_component(cuda_compiler_folder ${CMAKE_CUDA_COMPILER} DIRECTORY)
find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ${cuda_compiler_folder}/../../cudnn/include
  ${cuda_compiler_folder}/../include DOC "The folder of cudnn.h, of cuDNN 9")
if(NOT CUDNN_INCLUDE_DIR)
  message(FATAL_ERROR "There are no headers of cuDNN 9: install its package (libcudnn9-dev-cuda-13), or take the toolkit of `make deps-cuda`, which has them (CUDACXX=$(tools/install-cuda.sh)/toolkit/bin/nvcc), or set -DCUDNN_INCLUDE_DIR to their folder")
endif()
# And cuDNN's frontend, headers alone, which builds the graphs of attention.
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${cuda_compiler_folder}/../../cudnn-frontend ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES}
  ${cuda_compiler_folder}/../include DOC "The folder of cudnn_frontend.h, of cuDNN's frontend, tried with 1.32")
if(NOT CUDNN_FRONTEND_INCLUDE_DIR)
  message(FATAL_ERROR "There are no headers of cuDNN's frontend (cudnn_frontend.h): take the toolkit of `make deps-cuda`, which has them, or `pip install nvidia-cudnn-frontend` and set -DCUDNN_FRONTEND_INCLUDE_DIR to its folder include")
endif()
message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} for compute capabilities ${CMAKE_CUDA_ARCHITECTURES}")

# NCCL's header, for lib/collective/nccl; the library is loaded when replicas meet. Without it our own declarations serve.
cmake_path(GET CMAKE_CUDA_COMPILER PARENT_PATH cuda_bin)
find_path(FUSIONLLM_NCCL_INCLUDE nccl.h HINTS ${cuda_bin}/../../nccl/include ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
