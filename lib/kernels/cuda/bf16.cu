#include "lib/kernels/cuda/bf16.h"

#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

// Each element as a `Through` on its way.
template <typename From, typename Through, typename To>
__global__ void ConvertElements(const From* from, To* to, int64_t count) {
  const auto convert = [](From x) { return To(static_cast<float>(Through(static_cast<float>(x)))); };
  const int64_t quads = count / 4;
  for (int64_t i = FirstElement(); i < quads; i += ElementStride()) {
    const Quad<From> in = reinterpret_cast<const Quad<From>*>(from)[i];
    reinterpret_cast<Quad<To>*>(to)[i] = Quad<To>{convert(in.x), convert(in.y), convert(in.z), convert(in.w)};
  }
  for (int64_t i = 4 * quads + FirstElement(); i < count; i += ElementStride()) to[i] = convert(from[i]);
}

template <typename From, typename Through, typename To>
cudaError_t Convert(cudaStream_t stream, const From* from, To* to, int64_t count) {
  return Launch(stream, BlocksFor(count / 4 + 1), kThreads, 0, ConvertElements<From, Through, To>, from, to, count);
}

Bf16* Elements(uint16_t* bits) { return reinterpret_cast<Bf16*>(bits); }
const Bf16* Elements(const uint16_t* bits) { return reinterpret_cast<const Bf16*>(bits); }

}  // namespace

cudaError_t UpcastBf16(cudaStream_t stream, const uint16_t* from, float* to, int64_t count) {
  return Convert<Bf16, float, float>(stream, Elements(from), to, count);
}
cudaError_t RoundToBf16(cudaStream_t stream, const float* from, uint16_t* to, int64_t count) {
  return Convert<float, float, Bf16>(stream, from, Elements(to), count);
}
cudaError_t RoundFloatsToBf16(cudaStream_t stream, const float* from, float* to, int64_t count) {
  return Convert<float, Bf16, float>(stream, from, to, count);
}

}  // namespace fusionllm::kernels::cuda
