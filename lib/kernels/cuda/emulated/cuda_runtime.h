// As much of CUDA's runtime interface and of its C++ as lib/kernels/cuda uses, carried out by the processor: for tests of kernels on
// machines without a card. Included as <cuda_runtime.h> by the emulated build alone; names and meanings are CUDA's ("CUDA Runtime API" and
// "CUDA C++ Programming Guide", release 13.0).
//
// A block's threads are fibers that run in turns, switching at barriers and warp exchanges; blocks run one after the other. So results are
// those of a card as far as a kernel is free of races; a race may stay hidden, but a wrong index, a missing element, a barrier that not all
// reach and a sum that is wrong do not. Device memory is out of the host's reach: code that follows a device address on the host dies of
// SIGSEGV. What a stream is asked for is done as late as it may be: when the host waits for it, or another stream does that the host waits
// for; so a result that is read, memory that is used again, or another stream that goes on before the wait that it needs shows. One launch
// or copy at a time in a process.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

using std::isnan;  // NOLINT(google-global-names-in-headers): CUDA has it there

// ---- The language ----------------------------------------------------------------------------------------------------------------------

#define FUSIONLLM_EMULATED_CARD
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static  // one block at a time

struct dim3 {
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}  // NOLINT(google-explicit-constructor): CUDA's
  unsigned x, y, z;
};
struct uint3 {
  unsigned x, y, z;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// Of the fiber that runs.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

void __syncthreads();
void __syncwarp(unsigned mask = 0xffffffffu);

namespace fusionllm::kernels::cuda::emulated {

// Hands `bits` to the warp and takes those of `lane`; all lanes that are left of the warp must come.
uint64_t Exchange(uint64_t bits, int lane);
// Hands `bits` to the warp and gives `read` those of every lane; what pointers among them lead to is there until `read` returns. Aborts in
// a warp that is not whole.
void ExchangeAll(uint64_t bits, const std::function<void(const std::array<uint64_t, 32>&)>& read);
int Lane();
// Shared memory whose size the launch names.
std::byte* DynamicShared();
size_t DynamicSharedBytes();

// Copies to shared memory that a thread has begun and not waited for (tensor_cores.h); zeros where `from` is null.
struct LateCopy {
  std::byte* to;
  const std::byte* from;
  size_t bytes;
};
struct ThreadCopies {
  std::vector<LateCopy> begun;
  std::deque<std::vector<LateCopy>> groups;
};
ThreadCopies& CopiesOfThread();

template <typename T>
T ExchangeAs(T value, int lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  bits = Exchange(bits, lane);
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace fusionllm::kernels::cuda::emulated

template <typename T>
T __shfl_sync(unsigned, T value, int lane, int width = 32) {
  namespace e = fusionllm::kernels::cuda::emulated;
  return e::ExchangeAs(value, e::Lane() / width * width + lane % width);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask, int width = 32) {
  namespace e = fusionllm::kernels::cuda::emulated;
  const int lane = e::Lane() ^ mask;
  return e::ExchangeAs(value, lane / width == e::Lane() / width ? lane : e::Lane());
}
template <typename T>
T __shfl_down_sync(unsigned, T value, unsigned delta, int width = 32) {
  namespace e = fusionllm::kernels::cuda::emulated;
  const int lane = e::Lane() + static_cast<int>(delta);
  return e::ExchangeAs(value, lane / width == e::Lane() / width ? lane : e::Lane());
}
template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned delta, int width = 32) {
  namespace e = fusionllm::kernels::cuda::emulated;
  const int lane = e::Lane() - static_cast<int>(delta);
  return e::ExchangeAs(value, lane >= e::Lane() / width * width ? lane : e::Lane());
}
unsigned __ballot_sync(unsigned mask, int predicate);
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }

// No other fiber runs meanwhile.
template <typename T>
T atomicAdd(T* address, T value) {
  const T old = *address;
  *address = old + value;
  return old;
}
template <typename T>
T atomicMax(T* address, T value) {
  const T old = *address;
  if (value > old) *address = value;
  return old;
}
template <typename T>
T atomicMin(T* address, T value) {
  const T old = *address;
  if (value < old) *address = value;
  return old;
}
template <typename T>
T atomicOr(T* address, T value) {
  const T old = *address;
  *address = old | value;
  return old;
}
template <typename T>
T atomicCAS(T* address, T compare, T value) {
  const T old = *address;
  if (old == compare) *address = value;
  return old;
}
inline void __threadfence() {}
template <typename T>
T __ldg(const T* address) {
  return *address;
}
inline unsigned __float_as_uint(float x) {
  unsigned bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}
inline int min(int a, int b) { return a < b ? a : b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }  // where it fits
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32); }

// ---- The runtime -----------------------------------------------------------------------------------------------------------------------

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNotReady = 600,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3, cudaMemcpyDefault = 4 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum { cudaStreamNonBlocking = 1, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };

struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor, multiProcessorCount, l2CacheSize;
  size_t sharedMemPerBlockOptin;
};

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetPCIBusId(char* bus, int length, int device);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaMalloc(void** data, size_t bytes);
cudaError_t cudaFree(void* data);
cudaError_t cudaMallocHost(void** data, size_t bytes);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

// As on a card of compute capability 9.0: at most 227 KiB.
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int bytes) {
  return bytes <= 227 * 1024 ? cudaSuccess : cudaErrorInvalidValue;
}

namespace fusionllm::kernels::cuda::emulated {

// Has `thread` carried out for each thread of each block, in the order of `stream`.
cudaError_t LaunchGrid(cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes, std::function<void()> thread);
// What a library of the card would do, in the order of `stream`, with device memory open.
cudaError_t RunOnDevice(cudaStream_t stream, std::function<void()> work);

}  // namespace fusionllm::kernels::cuda::emulated
