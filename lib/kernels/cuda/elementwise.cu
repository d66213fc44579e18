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
  __device__ float operator()(float x) const { return x > 0 || isnan(x) ? x : 0.0f; }
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
  __device__ float operator()(float y, float dy) const { return y > 0 ? dy : 0.0f; }
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

// Four elements at a time where they are aligned, which views of an arena are; the rest one by one.
template <typename T, typename Function>
__global__ void MapElements(const T* x, T* y, int64_t count, Function function) {
  const int64_t quads = count / 4;
  for (int64_t i = FirstElement(); i < quads; i += ElementStride()) {
    const Quad<T> in = reinterpret_cast<const Quad<T>*>(x)[i];
    reinterpret_cast<Quad<T>*>(y)[i] = Quad<T>{function(in.x), function(in.y), function(in.z), function(in.w)};
  }
  for (int64_t i = 4 * quads + FirstElement(); i < count; i += ElementStride()) y[i] = function(x[i]);
}

template <typename T, typename Function>
__global__ void ZipElements(const T* a, const T* b, T* y, int64_t count, Function function) {
  const int64_t quads = count / 4;
  for (int64_t i = FirstElement(); i < quads; i += ElementStride()) {
    const Quad<T> p = reinterpret_cast<const Quad<T>*>(a)[i];
    const Quad<T> q = reinterpret_cast<const Quad<T>*>(b)[i];
    reinterpret_cast<Quad<T>*>(y)[i] = Quad<T>{function(p.x, q.x), function(p.y, q.y), function(p.z, q.z), function(p.w, q.w)};
  }
  for (int64_t i = 4 * quads + FirstElement(); i < count; i += ElementStride()) y[i] = function(a[i], b[i]);
}

template <typename T, typename Function>
__global__ void ZipBroadcast(const T* a, const T* b, T* y, Walk a_walk, Walk b_walk, int64_t count, Function function) {
  for (int64_t i = FirstElement(); i < count; i += ElementStride()) y[i] = function(a[a_walk.IndexOf(i)], b[b_walk.IndexOf(i)]);
}

template <typename T, typename Function>
class Map : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  Map(PreparedOp op, Device& device, Function function) : DeviceKernel(std::move(op), device), function_(function) {}
  bool CanRunInPlace(int output, int input) const override { return true; }
  absl::Status Run(const KernelArguments& arguments) override {
    const int64_t count = op_.out(0).elements();
    return Launched(Launch(stream(), BlocksFor(count / 4 + 1), kThreads, 0, MapElements<T, Function>, arguments.inputs[0].as<T>(),
                           arguments.outputs[0].as<T>(), count, function_));
  }

 private:
  const Function function_ = {};
};

template <typename T, typename Function>
class Zip : public DeviceKernel {
 public:
  Zip(PreparedOp op, Device& device)
      : DeviceKernel(std::move(op), device), same_(op_.in(0) == op_.out(0) && op_.in(1) == op_.out(0)), fits_(Walk::Fits(op_.out(0))) {}
  bool CanRunInPlace(int output, int input) const override { return op_.in(input) == op_.out(0); }
  absl::Status Run(const KernelArguments& arguments) override {
    const int64_t count = op_.out(0).elements();
    const T* a = arguments.inputs[0].as<T>();
    const T* b = arguments.inputs[1].as<T>();
    T* y = arguments.outputs[0].as<T>();
    if (same_)
      return Launched(Launch(stream(), BlocksFor(count / 4 + 1), kThreads, 0, ZipElements<T, Function>, a, b, y, count, Function()));
    if (!fits_) return TooManyAxes(op_);
    return Launched(Launch(stream(), BlocksFor(count), kThreads, 0, ZipBroadcast<T, Function>, a, b, y,
                           Walk::Broadcast(op_.in(0), op_.out(0)), Walk::Broadcast(op_.in(1), op_.out(0)), count, Function()));
  }

 private:
  const bool same_, fits_;
};

template <typename T>
MadeKernel MakeScale(PreparedOp op, Device& device) {
  const ScaleOf scale{static_cast<float>(op.attributes.Number("factor", 1)), static_cast<float>(op.attributes.Number("shift", 0))};
  return std::make_unique<Map<T, ScaleOf>>(std::move(op), device, scale);
}

bool UsesTanh(const PreparedOp& op) { return op.attributes.Text("approximate", "tanh") == "tanh"; }

template <typename T>
MadeKernel MakeGelu(PreparedOp op, Device& device) {
  return UsesTanh(op) ? Make<Map<T, GeluTanhOf>>(std::move(op), device) : Make<Map<T, GeluErfOf>>(std::move(op), device);
}
template <typename T>
MadeKernel MakeGeluGrad(PreparedOp op, Device& device) {
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
      return Launched(cudaMemcpyAsync(y, x, op_.outputs[0].bytes(), cudaMemcpyDeviceToDevice, stream()));
    }
    const int64_t samples = op_.out(0).rank() > 0 ? op_.out(0).dim(0) : 1;
    const int64_t of_sample = samples > 0 ? count / samples : 0;
    const RandomStream random = RandomStream::Of(
        arguments.random.seed, absl::StrCat("dropout/", op_.attributes.Text("name", op_.name), "/step ", arguments.random.step));
    // Samples of a micro-batch follow each other, so their elements do.
    return Launched(Launch(stream(), BlocksFor(count), kThreads, 0, DropElements<T>, x, y, count,
                           static_cast<uint64_t>(arguments.random.first_sample * of_sample), random, static_cast<float>(rate),
                           static_cast<float>(1 / (1 - rate))));
  }
};

template <typename Function>
constexpr Entry MapEntry(absl::string_view type) {
  return {type, Make<Map<float, Function>>, {Make<Map<Bf16, Function>>, "b", "b"}};
}
template <typename Function>
constexpr Entry ZipEntry(absl::string_view type) {
  return {type, Make<Zip<float, Function>>, {Make<Zip<Bf16, Function>>, "bb", "b"}};
}

}  // namespace

std::span<const Entry> ElementwiseKernels() {
  static constexpr Entry kEntries[] = {
      ZipEntry<AddOf>("add"),
      ZipEntry<SubOf>("sub"),
      ZipEntry<MulOf>("mul"),
      ZipEntry<DivOf>("div"),
      MapEntry<ReluOf>("relu"),
      ZipEntry<ReluGradOf>("relu_grad"),
      MapEntry<TanhOf>("tanh"),
      ZipEntry<TanhGradOf>("tanh_grad"),
      MapEntry<SigmoidOf>("sigmoid"),
      ZipEntry<SigmoidGradOf>("sigmoid_grad"),
      {"gelu", MakeGelu<float>, {MakeGelu<Bf16>, "b", "b"}},
      {"gelu_grad", MakeGeluGrad<float>, {MakeGeluGrad<Bf16>, "bb", "b"}},
      MapEntry<ExpOf>("exp"),
      MapEntry<LogOf>("log"),
      MapEntry<SqrtOf>("sqrt"),
      MapEntry<NegOf>("neg"),
      MapEntry<SquareOf>("square"),
      {"scale", MakeScale<float>, {MakeScale<Bf16>, "b", "b"}},
      OnBothTypes<Dropout>("dropout", "b", "b"),
      OnBothTypes<Dropout>("dropout_grad", "b", "b"),
  };
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
