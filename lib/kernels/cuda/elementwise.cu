#include <cmath>
#include <vector>

#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/indexing.h"
#include "lib/kernels/cuda/launch.h"
#include "lib/kernels/cuda/random.h"

namespace fusionllm::kernels::cuda {
namespace {

constexpr float kSqrt2OverPi = 0.79788456080286535588f;
constexpr float kCubic = 0.044715f;  // Hendrycks & Gimpel, arXiv 1606.08415, section 2
constexpr float kSqrtHalf = 0.70710678118654752440f;
constexpr float kInverseSqrt2Pi = 0.39894228040143267794f;

struct ReluOf {
  __device__ float operator()(float x) const { return Relu(x); }
};
struct TanhOf {
  __device__ float operator()(float x) const { return tanhf(x); }
};
struct SigmoidOf {
  __device__ float operator()(float x) const { return 1.0f / (1.0f + expf(-x)); }
};
struct ExpOf {
  __device__ float operator()(float x) const { return expf(x); }
};
struct LogOf {
  __device__ float operator()(float x) const { return logf(x); }
};
struct SqrtOf {
  __device__ float operator()(float x) const { return sqrtf(x); }
};
struct NegOf {
  __device__ float operator()(float x) const { return -x; }
};
struct SquareOf {
  __device__ float operator()(float x) const { return x * x; }
};
struct ScaleOf {
  float factor, shift;
  __device__ float operator()(float x) const { return __fadd_rn(__fmul_rn(factor, x), shift); }
};
struct GeluTanhOf {
  __device__ float operator()(float x) const { return 0.5f * x * (1 + tanhf(kSqrt2OverPi * (x + kCubic * x * x * x))); }
};
struct GeluErfOf {
  __device__ float operator()(float x) const { return 0.5f * x * (1 + erff(x * kSqrtHalf)); }
};

struct AddOf {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct SubOf {
  __device__ float operator()(float a, float b) const { return a - b; }
};
struct MulOf {
  __device__ float operator()(float a, float b) const { return a * b; }
};
struct DivOf {
  __device__ float operator()(float a, float b) const { return a / b; }
};
struct ReluGradOf {
  __device__ float operator()(float y, float dy) const { return ReluGradient(y, dy); }
};
struct TanhGradOf {
  __device__ float operator()(float y, float dy) const { return dy * (1 - y * y); }
};
struct SigmoidGradOf {
  __device__ float operator()(float y, float dy) const { return dy * y * (1 - y); }
};
struct GeluTanhGradOf {
  __device__ float operator()(float x, float dy) const {
    const float t = tanhf(kSqrt2OverPi * (x + kCubic * x * x * x));
    return dy * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kSqrt2OverPi * (1 + 3 * kCubic * x * x));
  }
};
struct GeluErfGradOf {
  __device__ float operator()(float x, float dy) const {
    return dy * (0.5f * (1 + erff(x * kSqrtHalf)) + x * kInverseSqrt2Pi * expf(-0.5f * x * x));
  }
};

// A pack of elements at a time, for views of an arena are aligned; the rest one by one.
template <typename T, typename Function>
__global__ void MapElements(const T* x, T* y, int64_t count, Function function) {
  const int64_t packs = count / Pack<T>::kSize;
  for (int64_t i = FirstElement(); i < packs; i += ElementStride()) {
    const Pack<T> in = reinterpret_cast<const Pack<T>*>(x)[i];
    Pack<T> out;
#pragma unroll
    for (int e = 0; e < Pack<T>::kSize; ++e) out.of[e] = function(in.of[e]);
    reinterpret_cast<Pack<T>*>(y)[i] = out;
  }
  for (int64_t i = Pack<T>::kSize * packs + FirstElement(); i < count; i += ElementStride()) y[i] = function(x[i]);
}

template <typename T, typename Function>
__global__ void ZipElements(const T* a, const T* b, T* y, int64_t count, Function function) {
  const int64_t packs = count / Pack<T>::kSize;
  for (int64_t i = FirstElement(); i < packs; i += ElementStride()) {
    const Pack<T> p = reinterpret_cast<const Pack<T>*>(a)[i], q = reinterpret_cast<const Pack<T>*>(b)[i];
    Pack<T> out;
#pragma unroll
    for (int e = 0; e < Pack<T>::kSize; ++e) out.of[e] = function(p.of[e], q.of[e]);
    reinterpret_cast<Pack<T>*>(y)[i] = out;
  }
  for (int64_t i = Pack<T>::kSize * packs + FirstElement(); i < count; i += ElementStride()) y[i] = function(a[i], b[i]);
}

template <typename T>
unsigned BlocksForPacks(int64_t count) {
  return BlocksFor(count / Pack<T>::kSize + 1);
}

template <typename T, typename Function>
__global__ void ZipBroadcast(const T* a, const T* b, T* y, StridedIndex a_strided, StridedIndex b_strided, int64_t count,
                             Function function) {
  for (int64_t i = FirstElement(); i < count; i += ElementStride()) y[i] = function(a[a_strided.IndexOf(i)], b[b_strided.IndexOf(i)]);
}

template <typename T, typename Function>
class Map : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  Map(PreparedOp op, Device& device, Function function) : DeviceKernel(std::move(op), device), function_(function) {}
  bool CanRunInPlace(int output, int input) const override { return true; }
  absl::Status Run(const KernelArguments& arguments) override {
    const int64_t count = op_.out(0).elements();
    return LaunchStatus(Launch(stream(), BlocksForPacks<T>(count), kThreads, 0, MapElements<T, Function>, arguments.inputs[0].as<T>(),
                               arguments.outputs[0].as<T>(), count, function_));
  }

 private:
  const Function function_ = {};
};

template <typename T, typename Function>
class Zip : public DeviceKernel {
 public:
  Zip(PreparedOp op, Device& device)
      : DeviceKernel(std::move(op), device),
        same_(op_.in(0) == op_.out(0) && op_.in(1) == op_.out(0)),
        fits_(StridedIndex::Fits(op_.out(0))) {}
  bool CanRunInPlace(int output, int input) const override { return op_.in(input) == op_.out(0); }
  absl::Status Run(const KernelArguments& arguments) override {
    const int64_t count = op_.out(0).elements();
    const T* a = arguments.inputs[0].as<T>();
    const T* b = arguments.inputs[1].as<T>();
    T* y = arguments.outputs[0].as<T>();
    if (same_)
      return LaunchStatus(Launch(stream(), BlocksForPacks<T>(count), kThreads, 0, ZipElements<T, Function>, a, b, y, count, Function()));
    if (!fits_) return TooManyAxes(op_);
    return LaunchStatus(Launch(stream(), BlocksFor(count), kThreads, 0, ZipBroadcast<T, Function>, a, b, y,
                               StridedIndex::Broadcast(op_.in(0), op_.out(0)), StridedIndex::Broadcast(op_.in(1), op_.out(0)), count,
                               Function()));
  }

 private:
  const bool same_, fits_;
};

template <typename T>
KernelOrError MakeScale(PreparedOp op, Device& device) {
  const ScaleOf scale{static_cast<float>(op.attributes.Number("factor", 1)), static_cast<float>(op.attributes.Number("shift", 0))};
  return std::make_unique<Map<T, ScaleOf>>(std::move(op), device, scale);
}

bool UsesTanh(const PreparedOp& op) { return op.attributes.Text("approximate", "tanh") == "tanh"; }

template <typename T>
KernelOrError MakeGelu(PreparedOp op, Device& device) {
  return UsesTanh(op) ? Make<Map<T, GeluTanhOf>>(std::move(op), device) : Make<Map<T, GeluErfOf>>(std::move(op), device);
}
template <typename T>
KernelOrError MakeGeluGrad(PreparedOp op, Device& device) {
  return UsesTanh(op) ? Make<Zip<T, GeluTanhGradOf>>(std::move(op), device) : Make<Zip<T, GeluErfGradOf>>(std::move(op), device);
}

template <typename T>
__global__ void DropElements(const T* x, T* y, int64_t count, uint64_t first_index, RandomStream random, float rate, float kept_scale) {
  for (int64_t i = FirstElement(); i < count; i += ElementStride()) {
    y[i] = random.Uniform(first_index + static_cast<uint64_t>(i)) < rate ? 0.0f : x[i] * kept_scale;
  }
}

// The mask of element i of a sample depends on (seed, name, step, sample's index in the global batch, i), as on the other back ends.
template <typename T>
class Dropout : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  bool CanRunInPlace(int output, int input) const override { return true; }
  bool IsRandom(Mode mode) const override { return mode != Mode::kEvaluate && op_.attributes.Number("rate", 0) > 0; }
  absl::Status Run(const KernelArguments& arguments) override {
    const double rate = op_.attributes.Number("rate", 0);
    const T* x = arguments.inputs[0].as<T>();
    T* y = arguments.outputs[0].as<T>();
    const int64_t count = op_.out(0).elements();
    if (arguments.mode == Mode::kEvaluate || rate <= 0) {
      if (x == y) return absl::OkStatus();
      return LaunchStatus(cudaMemcpyAsync(y, x, op_.outputs[0].bytes(), cudaMemcpyDeviceToDevice, stream()));
    }
    const int64_t samples = op_.out(0).rank() > 0 ? op_.out(0).dim(0) : 1;
    const int64_t of_sample = samples > 0 ? count / samples : 0;
    const RandomStream random = RandomStream::Of(
        arguments.random.seed, absl::StrCat("dropout/", op_.attributes.Text("name", op_.name), "/step ", arguments.random.step));
    // Samples of a micro-batch follow each other, so their elements do.
    return LaunchStatus(Launch(stream(), BlocksFor(count), kThreads, 0, DropElements<T>, x, y, count,
                               static_cast<uint64_t>(arguments.random.first_sample * of_sample), random, static_cast<float>(rate),
                               static_cast<float>(1 / (1 - rate))));
  }
};

// ---- Two ops at a time ------------------------------------------------------------------------------------------------------------------

// What a relu makes of a sum, or its gradient of a sum that comes back to it; `y`: the relu's, for the gradient; `sum` may be null.
template <typename T, bool kBackward>
__global__ void ReluOfSums(const T* a, const T* b, const T* y, T* sum, T* out, int64_t count) {
  const auto relu = [](float y, float s) { return kBackward ? ReluGradient(y, s) : Relu(s); };
  const int64_t packs = count / Pack<T>::kSize;
  for (int64_t i = FirstElement(); i < packs; i += ElementStride()) {
    const Pack<T> p = reinterpret_cast<const Pack<T>*>(a)[i], q = reinterpret_cast<const Pack<T>*>(b)[i];
    Pack<T> given = p, added, result;
    if (kBackward) given = reinterpret_cast<const Pack<T>*>(y)[i];
#pragma unroll
    for (int e = 0; e < Pack<T>::kSize; ++e) {
      added.of[e] = static_cast<float>(p.of[e]) + static_cast<float>(q.of[e]);
      result.of[e] = relu(given.of[e], added.of[e]);
    }
    if (sum != nullptr) reinterpret_cast<Pack<T>*>(sum)[i] = added;
    reinterpret_cast<Pack<T>*>(out)[i] = result;
  }
  for (int64_t i = Pack<T>::kSize * packs + FirstElement(); i < count; i += ElementStride()) {
    const T added = static_cast<float>(a[i]) + static_cast<float>(b[i]);
    const T result = relu(kBackward ? static_cast<float>(y[i]) : 0.0f, added);
    if (sum != nullptr) sum[i] = added;
    out[i] = result;
  }
}

// Inputs: both addends, then those of the relu or of its gradient (y, sum); outputs: sum, and what comes of it.
template <typename T, bool kBackward>
class AddRelu : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;  // op_: the sum
  bool CanRunInPlace(int output, int input) const override { return input < 2; }
  absl::Status Run(const KernelArguments& arguments) override {
    const int64_t count = op_.out(0).elements();
    return LaunchStatus(Launch(stream(), BlocksForPacks<T>(count), kThreads, 0, ReluOfSums<T, kBackward>, arguments.inputs[0].as<T>(),
                               arguments.inputs[1].as<T>(), kBackward ? arguments.inputs[2].as<T>() : nullptr, OutputAs<T>(arguments, 0),
                               arguments.outputs[1].as<T>(), count));
  }
};

template <bool kBackward>
KernelOrError FuseAddRelu(PreparedFusedOps row, Device& device) {
  PreparedOp& add = row[0].op;
  if (row[1].through != (kBackward ? 1 : 0) || !OfOneType(add, 2, row[1].op)) return nullptr;
  if (add.outputs[0].dtype == tensor::DType::kF32) return Make<AddRelu<float, kBackward>>(std::move(add), device);
  return Make<AddRelu<Bf16, kBackward>>(std::move(add), device);
}

template <typename Function>
constexpr Entry MapEntry(opdag::OpKind kind) {
  return {kind, Make<Map<float, Function>>, {Make<Map<Bf16, Function>>, "b", "b"}};
}
template <typename Function>
constexpr Entry ZipEntry(opdag::OpKind kind) {
  return {kind, Make<Zip<float, Function>>, {Make<Zip<Bf16, Function>>, "bb", "b"}};
}

}  // namespace

std::span<const Entry> ElementwiseKernels() {
  static constexpr Entry kEntries[] = {
      ZipEntry<AddOf>(OpKind::kAdd),
      ZipEntry<SubOf>(OpKind::kSub),
      ZipEntry<MulOf>(OpKind::kMul),
      ZipEntry<DivOf>(OpKind::kDiv),
      MapEntry<ReluOf>(OpKind::kRelu),
      ZipEntry<ReluGradOf>(OpKind::kReluGrad),
      MapEntry<TanhOf>(OpKind::kTanh),
      ZipEntry<TanhGradOf>(OpKind::kTanhGrad),
      MapEntry<SigmoidOf>(OpKind::kSigmoid),
      ZipEntry<SigmoidGradOf>(OpKind::kSigmoidGrad),
      {OpKind::kGelu, MakeGelu<float>, {MakeGelu<Bf16>, "b", "b"}},
      {OpKind::kGeluGrad, MakeGeluGrad<float>, {MakeGeluGrad<Bf16>, "bb", "b"}},
      MapEntry<ExpOf>(OpKind::kExp),
      MapEntry<LogOf>(OpKind::kLog),
      MapEntry<SqrtOf>(OpKind::kSqrt),
      MapEntry<NegOf>(OpKind::kNeg),
      MapEntry<SquareOf>(OpKind::kSquare),
      {OpKind::kScale, MakeScale<float>, {MakeScale<Bf16>, "b", "b"}},
      OnBothTypes<Dropout>(OpKind::kDropout, "b", "b"),
      OnBothTypes<Dropout>(OpKind::kDropoutGrad, "b", "b"),
  };
  return kEntries;
}

std::span<const FusedEntry> ElementwiseFusions() {
  static constexpr FusedEntry kEntries[] = {{{OpKind::kAdd, OpKind::kRelu}, FuseAddRelu<false>},
                                            {{OpKind::kAdd, OpKind::kReluGrad}, FuseAddRelu<true>}};
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
