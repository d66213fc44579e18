// Bytes of memory for each value, read and written: fp16 4 + 4 + 2 (the greatest comes first), bf16 4 + 2, int8 4 + 1, int4 4 + 0.5;
// decoding as many as the code and 4.
#include "lib/compression/cuda/quantize.h"

#include <algorithm>
#include <cmath>

#include "lib/compression/cuda/device_code.h"
#include "lib/compression/quantize.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::compression::cuda {
namespace {

using kernels::cuda::BlocksFor;
using kernels::cuda::ElementStride;
using kernels::cuda::FirstElement;
using kernels::cuda::kThreads;
using kernels::cuda::Launch;
using kernels::cuda::MaxOverBlock;

constexpr int kInt8Block = kInt8BlockSize;
constexpr int kInt4Block = kInt4BlockSize;

// Round to nearest even in integer arithmetic, as on the host.
__device__ inline uint16_t ToHalf(float x) {
  const uint32_t bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu, sign = (bits ^ magnitude) >> 16;
  // Below 2^-14 a half counts in units of 2^-24, as does a float in [0.5, 1): the addition rounds for us.
  if (magnitude < (113u << 23))
    return static_cast<uint16_t>(sign | (__float_as_uint(__fadd_rn(__uint_as_float(magnitude), 0.5f)) - (126u << 23)));
  return static_cast<uint16_t>(sign | (((magnitude + 0xfffu + ((magnitude >> 13) & 1u)) >> 13) - (112u << 10)));
}

// Of a finite half.
__device__ inline float OfHalf(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  if (magnitude >= 0x400u) return __uint_as_float(sign | ((magnitude << 13) + (112u << 23)));
  return __uint_as_float(sign | __float_as_uint(__fmul_rn(static_cast<float>(magnitude), 0x1p-24f)));
}

// magnitude / codes as a float whose lower 16 bits are zero, rounded up; 0 where it would be subnormal.
__device__ inline float BlockScale(uint32_t magnitude, float codes) {
  const uint32_t bits = (__float_as_uint(__fdiv_rn(__uint_as_float(magnitude), codes)) + 0xffffu) & 0xffff0000u;
  return bits < (1u << 23) ? 0.0f : __uint_as_float(bits);
}

__device__ inline float InverseOf(float scale) { return scale == 0 ? 0.0f : __fdiv_rn(1.0f, scale); }

__device__ inline float Difference(const float* minuend, int64_t i, float decoded) {
  return minuend == nullptr ? decoded : minuend[i] - decoded;
}

__global__ void FindMaxMagnitude(const float* values, int64_t n, uint32_t* max_magnitude) {
  uint32_t own = 0;
  for (int64_t i = FirstElement(); i < n; i += ElementStride()) own = std::max(own, MagnitudeOf(values[i]));
  MaxOfGrid(own, max_magnitude);
}

// HalfExponent's e; 2^e and 2^-e are normal floats.
__device__ inline int HalfExponentOf(uint32_t max_magnitude) {
  const int exponent = static_cast<int>(max_magnitude >> 23) - 127 - 14;
  return exponent < kMinHalfExponent ? kMinHalfExponent : exponent > kMaxHalfExponent ? kMaxHalfExponent : exponent;
}
__device__ inline float PowerOfTwo(int exponent) { return __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23); }

__global__ void WriteHalves(const float* values, int64_t n, const uint32_t* max_magnitude, uint16_t* out) {
  const float factor = PowerOfTwo(-HalfExponentOf(*max_magnitude));
  for (int64_t i = FirstElement(); i < n; i += ElementStride()) out[i] = ToHalf(__fmul_rn(values[i], factor));
}

__global__ void WriteBfloats(const float* values, int64_t n, uint16_t* out, uint32_t* max_magnitude) {
  uint32_t own = 0;
  for (int64_t i = FirstElement(); i < n; i += ElementStride()) {
    const uint32_t bits = __float_as_uint(values[i]);
    own = std::max(own, bits & 0x7fffffffu);
    out[i] = static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
  MaxOfGrid(own, max_magnitude);
}

// A warp for each block: two values a lane.
__global__ void WriteInt8(const float* values, int64_t n, uint16_t* scales, int8_t* codes, uint32_t* max_magnitude) {
  const int lane = threadIdx.x % 32;
  const int64_t blocks = (n + kInt8Block - 1) / kInt8Block;
  uint32_t own = 0;
  for (int64_t block = FirstElement() / 32; block < blocks; block += ElementStride() / 32) {
    const int64_t low = block * kInt8Block + lane, high = low + 32;
    const float a = low < n ? values[low] : 0.0f, b = high < n ? values[high] : 0.0f;
    const uint32_t magnitude = MaxOfWarp(std::max(MagnitudeOf(a), MagnitudeOf(b)));
    const float scale = BlockScale(magnitude, 127.0f), inverse = InverseOf(scale);
    if (lane == 0) scales[block] = static_cast<uint16_t>(__float_as_uint(scale) >> 16);
    if (low < n) codes[low] = static_cast<int8_t>(__float2int_rn(__fmul_rn(a, inverse)));
    if (high < n) codes[high] = static_cast<int8_t>(__float2int_rn(__fmul_rn(b, inverse)));
    own = std::max(own, magnitude);
  }
  MaxOfGrid(own, max_magnitude);
}

// A warp for each block: one value a lane; the lower half of the lanes write.
__global__ void WriteInt4(const float* values, int64_t n, uint16_t* scales, uint8_t* codes, uint32_t* max_magnitude) {
  const int lane = threadIdx.x % 32;
  const int64_t blocks = (n + kInt4Block - 1) / kInt4Block;
  uint32_t own = 0;
  for (int64_t block = FirstElement() / 32; block < blocks; block += ElementStride() / 32) {
    const int64_t i = block * kInt4Block + lane;
    const float x = i < n ? values[i] : 0.0f;
    const uint32_t magnitude = MaxOfWarp(MagnitudeOf(x));
    const float scale = BlockScale(magnitude, 7.0f);
    const int code = __float2int_rn(__fmul_rn(x, InverseOf(scale))) + 8;
    const int above = __shfl_down_sync(0xffffffffu, code, kInt4Block / 2);
    if (lane == 0) scales[block] = static_cast<uint16_t>(__float_as_uint(scale) >> 16);
    if (lane < kInt4Block / 2) codes[block * (kInt4Block / 2) + lane] = static_cast<uint8_t>(code | (above << 4));
    own = std::max(own, magnitude);
  }
  MaxOfGrid(own, max_magnitude);
}

__global__ void AddResidual(const float* values, const float* residual, int64_t n, float* corrected) {
  for (int64_t i = FirstElement(); i < n; i += ElementStride()) corrected[i] = residual == nullptr ? values[i] : values[i] + residual[i];
}

// One block, which looks at nothing in the usual case.
__global__ void FindFirstUnencodable(const float* values, const uint32_t* indices, int64_t n, UnencodableValue* unencodable) {
  if (unencodable->max_magnitude <= kMaxMagnitudeBits) return;
  for (int64_t stretch = 0; stretch < n; stretch += blockDim.x) {
    const int64_t i = stretch + threadIdx.x;
    // Of the block's threads the first that has one: all but it answer with the greatest number.
    const bool bad = i < n && MagnitudeOf(values[i]) > kMaxMagnitudeBits;
    const auto first = static_cast<unsigned>(-MaxOverBlock(bad ? -static_cast<float>(threadIdx.x) : -1024.0f));
    if (first == 1024u) continue;
    if (threadIdx.x == first) {
      unencodable->index = indices == nullptr ? static_cast<uint32_t>(i) : indices[i];
      unencodable->value = values[i];
      unencodable->found = 1;
    }
    return;
  }
}

__global__ void ReadHalves(const uint16_t* halves, int64_t n, float factor, const uint32_t* max_magnitude, const float* minuend,
                           float* out) {
  if (max_magnitude != nullptr) factor = PowerOfTwo(HalfExponentOf(*max_magnitude));
  for (int64_t i = FirstElement(); i < n; i += ElementStride()) out[i] = Difference(minuend, i, __fmul_rn(OfHalf(halves[i]), factor));
}

__global__ void ReadBf16(const uint16_t* bfloats, int64_t n, const float* minuend, float* out) {
  for (int64_t i = FirstElement(); i < n; i += ElementStride()) {
    out[i] = Difference(minuend, i, __uint_as_float(static_cast<uint32_t>(bfloats[i]) << 16));
  }
}

__global__ void ReadInt8(const uint16_t* scales, const int8_t* codes, int64_t n, const float* minuend, float* out) {
  for (int64_t i = FirstElement(); i < n; i += ElementStride()) {
    const float scale = __uint_as_float(static_cast<uint32_t>(scales[i / kInt8Block]) << 16);
    out[i] = Difference(minuend, i, __fmul_rn(static_cast<float>(codes[i]), scale));
  }
}

__global__ void ReadInt4(const uint16_t* scales, const uint8_t* codes, int64_t n, const float* minuend, float* out) {
  constexpr int kHalf = kInt4Block / 2;
  for (int64_t i = FirstElement(); i < n; i += ElementStride()) {
    const int64_t block = i / kInt4Block;
    const int within = static_cast<int>(i % kInt4Block);
    const int both = codes[block * kHalf + within % kHalf];
    const int code = (within < kHalf ? both & 15 : both >> 4) - 8;
    const float scale = __uint_as_float(static_cast<uint32_t>(scales[block]) << 16);
    out[i] = Difference(minuend, i, __fmul_rn(static_cast<float>(code), scale));
  }
}

uint16_t* Words(std::byte* bytes) { return reinterpret_cast<uint16_t*>(bytes); }
const uint16_t* Words(const std::byte* bytes) { return reinterpret_cast<const uint16_t*>(bytes); }

cudaError_t EncodeFp16(cudaStream_t stream, const float* values, int64_t n, std::byte* out, uint32_t* max_magnitude) {
  const cudaError_t error = Launch(stream, BlocksFor(n), kThreads, 0, FindMaxMagnitude, values, n, max_magnitude);
  if (error != cudaSuccess) return error;
  return Launch(stream, BlocksFor(n), kThreads, 0, WriteHalves, values, n, max_magnitude, Words(out));
}
cudaError_t DecodeFp16(cudaStream_t stream, const std::byte* in, int64_t n, int32_t parameter, const uint32_t* max_magnitude,
                       const float* minuend, float* out) {
  const float factor = max_magnitude == nullptr ? std::ldexp(1.0f, parameter) : 0.0f;
  return Launch(stream, BlocksFor(n), kThreads, 0, ReadHalves, Words(in), n, factor, max_magnitude, minuend, out);
}

cudaError_t EncodeBf16(cudaStream_t stream, const float* values, int64_t n, std::byte* out, uint32_t* max_magnitude) {
  return Launch(stream, BlocksFor(n), kThreads, 0, WriteBfloats, values, n, Words(out), max_magnitude);
}
cudaError_t DecodeBf16(cudaStream_t stream, const std::byte* in, int64_t n, int32_t, const uint32_t*, const float* minuend, float* out) {
  return Launch(stream, BlocksFor(n), kThreads, 0, ReadBf16, Words(in), n, minuend, out);
}

// Of n values in blocks, whose codes come behind them.
int64_t ScaleBytes(int64_t n, int64_t block) { return 2 * ((n + block - 1) / block); }

cudaError_t EncodeInt8(cudaStream_t stream, const float* values, int64_t n, std::byte* out, uint32_t* max_magnitude) {
  auto* const codes = reinterpret_cast<int8_t*>(out + ScaleBytes(n, kInt8Block));
  return Launch(stream, BlocksFor((n + 1) / 2), kThreads, 0, WriteInt8, values, n, Words(out), codes, max_magnitude);
}
cudaError_t DecodeInt8(cudaStream_t stream, const std::byte* in, int64_t n, int32_t, const uint32_t*, const float* minuend, float* out) {
  const auto* const codes = reinterpret_cast<const int8_t*>(in + ScaleBytes(n, kInt8Block));
  return Launch(stream, BlocksFor(n), kThreads, 0, ReadInt8, Words(in), codes, n, minuend, out);
}

cudaError_t EncodeInt4(cudaStream_t stream, const float* values, int64_t n, std::byte* out, uint32_t* max_magnitude) {
  auto* const codes = reinterpret_cast<uint8_t*>(out + ScaleBytes(n, kInt4Block));
  return Launch(stream, BlocksFor(n), kThreads, 0, WriteInt4, values, n, Words(out), codes, max_magnitude);
}
cudaError_t DecodeInt4(cudaStream_t stream, const std::byte* in, int64_t n, int32_t, const uint32_t*, const float* minuend, float* out) {
  const auto* const codes = reinterpret_cast<const uint8_t*>(in + ScaleBytes(n, kInt4Block));
  return Launch(stream, BlocksFor(n), kThreads, 0, ReadInt4, Words(in), codes, n, minuend, out);
}

constexpr DeviceCodec kDeviceCodecs[] = {{Layout::kFp16, EncodeFp16, DecodeFp16},
                                         {Layout::kBf16, EncodeBf16, DecodeBf16},
                                         {Layout::kInt8, EncodeInt8, DecodeInt8},
                                         {Layout::kInt4, EncodeInt4, DecodeInt4}};

}  // namespace

const DeviceCodec* FindDeviceCodec(Layout layout) {
  for (const DeviceCodec& codec : kDeviceCodecs) {
    if (codec.layout == layout) return &codec;
  }
  return nullptr;
}

cudaError_t Correct(cudaStream_t stream, const float* values, const float* residual, int64_t n, float* corrected) {
  return Launch(stream, BlocksFor(n), kThreads, 0, AddResidual, values, residual, n, corrected);
}

cudaError_t FindUnencodable(cudaStream_t stream, const float* values, const uint32_t* indices, int64_t n, UnencodableValue* unencodable) {
  return Launch(stream, 1, kThreads, 0, FindFirstUnencodable, values, indices, n, unencodable);
}

}  // namespace fusionllm::compression::cuda
