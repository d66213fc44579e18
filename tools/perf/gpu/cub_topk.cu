// CUB's DeviceTopK on the task of topk_bench: the k values of greatest magnitude with their indices, in any order. Prints one line of JSON.
//
//   nvcc -O3 -std=c++17 -arch=native -I CCCL/include/cccl cub_topk.cu -o cub_topk && ./cub_topk VALUES KEPT
//
// The toolkit of CUDA 13.0 has no DeviceTopK yet (CCCL 3.0); later ones and the wheel nvidia-cuda-cccl from 13.2 on do. Keys are
// magnitudes, made on the fly; the values that go with them are the indices, so the kept floats themselves would take one more gather.
#include <cub/version.cuh>

#if __has_include(<cub/device/device_topk.cuh>)
#include <cub/device/device_topk.cuh>

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <cuda/std/execution>
#include <cuda/stream>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#define CHECK(call)                                                                 \
  do {                                                                              \
    const cudaError_t error = (call);                                               \
    if (error != cudaSuccess) {                                                     \
      std::fprintf(stderr, "cub_topk: %s: %s\n", #call, cudaGetErrorString(error)); \
      return 1;                                                                     \
    }                                                                               \
  } while (false)

struct Magnitude {
  __host__ __device__ float operator()(float x) const { return fabsf(x); }
};

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: cub_topk VALUES KEPT\n");
    return 2;
  }
  const int n = std::atoi(argv[1]), k = std::atoi(argv[2]);
  constexpr int kBuffers = 4, kCalls = 50, kWarm = 10;
  std::vector<float> host(n);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& x : host) x = normal(random);
  float* buffers[kBuffers];
  for (float*& buffer : buffers) {
    CHECK(cudaMalloc(&buffer, sizeof(float) * n));
    CHECK(cudaMemcpy(buffer, host.data(), sizeof(float) * n, cudaMemcpyHostToDevice));
  }
  float* keys = nullptr;
  int* indices = nullptr;
  CHECK(cudaMalloc(&keys, sizeof(float) * k));
  CHECK(cudaMalloc(&indices, sizeof(int) * k));
  const auto requirements =
      cuda::execution::require(cuda::execution::determinism::not_guaranteed, cuda::execution::output_ordering::unsorted);
  const auto select = [&](void* workspace, size_t& bytes, const float* values) {
    return cub::DeviceTopK::MaxPairs(workspace, bytes, thrust::make_transform_iterator(values, Magnitude()), keys,
                                     thrust::counting_iterator<int>(0), indices, n, k, requirements);
  };
  size_t bytes = 0;
  void* workspace = nullptr;
  CHECK(select(nullptr, bytes, buffers[0]));
  CHECK(cudaMalloc(&workspace, bytes));
  CHECK(select(workspace, bytes, buffers[0]));
  CHECK(cudaDeviceSynchronize());

  std::vector<float> got(k), want(host);
  CHECK(cudaMemcpy(got.data(), keys, sizeof(float) * k, cudaMemcpyDeviceToHost));
  for (float& x : want) x = std::fabs(x);
  std::nth_element(want.begin(), want.begin() + (k - 1), want.end(), std::greater<float>());
  if (*std::min_element(got.begin(), got.end()) != want[k - 1]) {
    std::fprintf(stderr, "cub_topk: not the greatest %d\n", k);
    return 1;
  }

  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  std::vector<double> seconds;
  for (int call = 0; call < kCalls; ++call) {
    float milliseconds = 0;
    CHECK(cudaEventRecord(begin));
    CHECK(select(workspace, bytes, buffers[call % kBuffers]));
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    if (call >= kWarm) seconds.push_back(1e-3 * milliseconds);
  }
  std::sort(seconds.begin(), seconds.end());
  std::printf("{\"program\": \"cub\", \"versions\": \"CUB %d.%d.%d\", \"values\": %d, \"kept\": %d, ", CUB_MAJOR_VERSION, CUB_MINOR_VERSION,
              CUB_SUBMINOR_VERSION, n, k);
  std::printf("\"seconds\": %g, \"seconds_least\": %g, \"seconds_most\": %g}\n", seconds[seconds.size() / 2], seconds.front(),
              seconds.back());
  return 0;
}
#else
#error "this CCCL has no cub/device/device_topk.cuh"
#endif
