#include <utility>

#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/checks.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

constexpr int64_t kDefaultIgnored = -100;  // torch's
constexpr int64_t kMaxPartials = 256;

// What a row adds to the sums.
struct RowLoss {
  float loss;
  int32_t counted;  // 0: its label is ignored
  int32_t correct;
};

// A number that is stored as the output's type says.
struct CountOut {
  void* data;
  tensor::DType type;
};

__device__ void StoreCount(const CountOut& out, int64_t count) {
  if (out.data == nullptr) return;
  if (out.type == tensor::DType::kF32) *static_cast<float*>(out.data) = static_cast<float>(count);
  if (out.type == tensor::DType::kI32) *static_cast<int32_t*>(out.data) = static_cast<int32_t>(count);
  if (out.type == tensor::DType::kI64) *static_cast<int64_t*>(out.data) = count;
}

// Elements of a row, in groups that are read and written at once, by 16 bytes, and one by one what comes before the first whole group and
// after the last. `single` gets the number of an element, `whole` that of a group's first. Tensors begin at whole groups.
template <typename T>
struct alignas(16) Group {
  static constexpr int kSize = 8;  // whatever the type: so both have the same sums
  T at[kSize];
};
template <typename T, typename Single, typename Whole>
__device__ void ForEachOfRow(const T* row, int64_t classes, Single single, Whole whole) {
  constexpr int kSize = Group<T>::kSize;
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(row) / sizeof(T) % kSize);
  const int64_t head = past == 0 ? 0 : kSize - past < classes ? kSize - past : classes, groups = (classes - head) / kSize;
  if (threadIdx.x < head) single(static_cast<int64_t>(threadIdx.x));
  for (int64_t g = threadIdx.x; g < groups; g += blockDim.x) whole(head + g * kSize);
  const int64_t tail = head + groups * kSize + threadIdx.x;
  if (tail < classes) single(tail);
}

// The greatest of what was seen, its first place, and the sum of exp(x - greatest): Milakov and Gimelshein, arXiv 1805.02867, section 3.
// Merging is exact in the greatest and its place; the sum's order depends on shapes and on where a row lies within 16 bytes.
struct Online {
  float top = -INFINITY;
  float sum = 0;
  int32_t first = 0x7fffffff;

  __device__ void Merge(float other_top, float other_sum, int32_t other_first) {
    if (other_top > top) {
      sum = sum * expf(top - other_top) + other_sum;
      top = other_top;
      first = other_first;
    } else if (other_top == top) {
      sum += top == -INFINITY && !isnan(other_sum) ? 0.0f : other_sum;
      first = other_first < first ? other_first : first;
    } else if (other_sum != 0) {
      sum += other_sum * expf(other_top - top);
    }
  }
  __device__ void Add(float x, int64_t i) {
    if (isnan(x)) {
      sum = x;  // which nothing takes away
    } else {
      Merge(x, 1.0f, static_cast<int32_t>(i));
    }
  }
};

__device__ inline Online OverBlock(Online own) {
  __shared__ Online of_warp[32];
  for (int mask = 16; mask > 0; mask /= 2) {
    const float top = __shfl_xor_sync(0xffffffffu, own.top, mask), sum = __shfl_xor_sync(0xffffffffu, own.sum, mask);
    const int32_t first = __shfl_xor_sync(0xffffffffu, own.first, mask);
    own.Merge(top, sum, first);
  }
  __syncthreads();  // threads that still read those of the row before
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
  __syncthreads();
  Online all = of_warp[0];
  for (unsigned w = 1; w < blockDim.x / 32; ++w) all.Merge(of_warp[w].top, of_warp[w].sum, of_warp[w].first);
  return all;
}

// Reads each logit once.
template <typename T>
__global__ void RowLosses(const T* logits, const int32_t* labels, float* lse, RowLoss* losses, int64_t rows, int64_t classes,
                          int64_t ignored, RangeCheck check) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* in = logits + row * classes;
    Online own;
    ForEachOfRow(
        in, classes, [&](int64_t i) { own.Add(in[i], i); },
        [&](int64_t i) {
          const Group<T> group = *reinterpret_cast<const Group<T>*>(in + i);
          // What there is of a sum is scaled once for the group.
          float top = own.top;
#pragma unroll
          for (int e = 0; e < Group<T>::kSize; ++e) top = fmaxf(top, group.at[e]);
          if (top > own.top) {
            own.sum *= expf(own.top - top);
#pragma unroll
            for (int e = Group<T>::kSize - 1; e >= 0; --e) own.first = group.at[e] == top ? static_cast<int32_t>(i + e) : own.first;
            own.top = top;
          }
#pragma unroll
          for (int e = 0; e < Group<T>::kSize; ++e) {
            const float x = group.at[e];
            own.sum += x == -INFINITY ? 0.0f : expf(x - top);
          }
        });
    const Online all = OverBlock(own);
    if (threadIdx.x != 0) continue;
    const int32_t label = labels[row];
    const bool counted = label != ignored;
    const bool good = counted && label >= 0 && label < check.limit;
    if (counted && !good) InRange(check, label, row);
    const float log_sum = all.top + logf(all.sum);
    if (lse != nullptr) lse[row] = log_sum;
    // Of equal logits the first is the answer.
    losses[row] = {good ? log_sum - in[label] : 0.0f, counted ? 1 : 0, good && all.first == label ? 1 : 0};
  }
}

// One block: sums in double, in an order that depends on the number of rows alone.
__global__ void SumLosses(const RowLoss* losses, int64_t rows, float* loss, CountOut correct, float* share) {
  double sum = 0;
  int64_t counted = 0, hits = 0;
  for (int64_t row = threadIdx.x; row < rows; row += blockDim.x) {
    sum += losses[row].loss;
    counted += losses[row].counted;
    hits += losses[row].correct;
  }
  sum = SumOverBlock(sum);
  counted = SumOverBlock(counted);
  hits = SumOverBlock(hits);
  if (threadIdx.x != 0) return;
  // A micro-batch whose labels are all ignored has loss 0, not 0/0: it adds nothing to the global mean.
  *loss = counted == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(counted));
  StoreCount(correct, hits);
  if (share != nullptr) *share = static_cast<float>(static_cast<double>(counted) / static_cast<double>(rows));
}

__global__ void ScaleOfGradients(const int32_t* labels, int64_t rows, int64_t ignored, const float* dloss, float* scale) {
  int64_t counted = 0;
  for (int64_t row = threadIdx.x; row < rows; row += blockDim.x) counted += labels[row] != ignored ? 1 : 0;
  counted = SumOverBlock(counted);
  if (threadIdx.x == 0) *scale = counted == 0 ? 0.0f : static_cast<float>(*dloss / static_cast<double>(counted));
}

template <typename T>
__global__ void GradientRows(const T* logits, const int32_t* labels, const float* lse, const float* scale, T* dlogits, int64_t rows,
                             int64_t classes, int64_t ignored, RangeCheck check) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int32_t label = labels[row];
    if (label != ignored && threadIdx.x == 0) InRange(check, label, row);
    const float factor = label == ignored ? 0.0f : *scale, log_sum = lse[row];
    const T* const in = logits + row * classes;
    T* const out = dlogits + row * classes;
    const auto gradient = [&](float x, int64_t i) {
      return label == ignored ? 0.0f : (expf(x - log_sum) - (i == label ? 1.0f : 0.0f)) * factor;
    };
    ForEachOfRow(
        in, classes, [&](int64_t i) { out[i] = gradient(in[i], i); },
        [&](int64_t i) {
          Group<T> group = *reinterpret_cast<const Group<T>*>(in + i);
#pragma unroll
          for (int e = 0; e < Group<T>::kSize; ++e) group.at[e] = gradient(group.at[e], i + e);
          *reinterpret_cast<Group<T>*>(out + i) = group;
        });
  }
}

class CrossEntropyBase : public DeviceKernel {
 public:
  CrossEntropyBase(PreparedOp op, Device& device)
      : DeviceKernel(std::move(op), device),
        rows_(op_.in(0).rows()),
        classes_(op_.in(0).dim(-1)),
        ignored_(op_.attributes.Int("ignore_index", kDefaultIgnored)),
        check_{device.fault(), device.AddCheck(absl::StrCat(op_.Prefix(), "label"), classes_), classes_} {}

 protected:
  const int64_t rows_, classes_, ignored_;
  const RangeCheck check_;
};

template <typename T>
class CrossEntropy : public CrossEntropyBase {
 public:
  using CrossEntropyBase::CrossEntropyBase;
  size_t workspace_bytes() const override { return sizeof(RowLoss) * static_cast<size_t>(rows_); }
  absl::Status Run(const KernelArguments& arguments) override {
    auto* losses = reinterpret_cast<RowLoss*>(arguments.workspace.data());
    float* lse = op_.outputs.size() > 2 ? OutputOrNull(arguments, 2) : nullptr;
    FUSIONLLM_RETURN_IF_ERROR(LaunchStatus(Launch(stream(), BlocksForRows(rows_), kThreads, 0, RowLosses<T>, arguments.inputs[0].as<T>(),
                                                  arguments.inputs[1].as<int32_t>(), lse, losses, rows_, classes_, ignored_, check_)));
    const CountOut correct = op_.outputs.size() > 1 ? CountOut{arguments.outputs[1].data, op_.outputs[1].dtype} : CountOut{};
    float* share = op_.outputs.size() > 3 ? OutputOrNull(arguments, 3) : nullptr;
    return LaunchStatus(Launch(stream(), 1, kThreads, 0, SumLosses, static_cast<const RowLoss*>(losses), rows_, arguments.outputs[0].f32(),
                               correct, share));
  }
};

template <typename T>
class CrossEntropyGrad : public CrossEntropyBase {
 public:
  using CrossEntropyBase::CrossEntropyBase;
  size_t workspace_bytes() const override { return sizeof(float); }
  absl::Status Run(const KernelArguments& arguments) override {
    auto* scale = reinterpret_cast<float*>(arguments.workspace.data());
    const auto* labels = arguments.inputs[1].as<int32_t>();
    FUSIONLLM_RETURN_IF_ERROR(
        LaunchStatus(Launch(stream(), 1, kThreads, 0, ScaleOfGradients, labels, rows_, ignored_, arguments.inputs[3].f32(), scale)));
    return LaunchStatus(Launch(stream(), BlocksForRows(rows_), kThreads, 0, GradientRows<T>, arguments.inputs[0].as<T>(), labels,
                               arguments.inputs[2].f32(), static_cast<const float*>(scale), arguments.outputs[0].as<T>(), rows_, classes_,
                               ignored_, check_));
  }
};

int64_t Partials(int64_t count) { return std::clamp<int64_t>(count / 4096, 1, kMaxPartials); }

__global__ void SumSquaredDifferences(const float* a, const float* b, int64_t count, double* partials) {
  double sum = 0;
  for (int64_t i = FirstElement(); i < count; i += ElementStride()) {
    const double difference = static_cast<double>(a[i]) - b[i];
    sum += difference * difference;
  }
  sum = SumOverBlock(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void MeanOfPartials(const double* partials, int64_t blocks, int64_t count, float* loss) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < blocks; i += blockDim.x) sum += partials[i];
  sum = SumOverBlock(sum);
  if (threadIdx.x == 0) *loss = static_cast<float>(sum / static_cast<double>(count));
}

__global__ void DifferenceGradients(const float* a, const float* b, const float* dloss, float* dx, int64_t count) {
  const double scale = 2.0 * *dloss / static_cast<double>(count);
  for (int64_t i = FirstElement(); i < count; i += ElementStride()) {
    dx[i] = static_cast<float>((static_cast<double>(a[i]) - b[i]) * scale);
  }
}

class Mse : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  size_t workspace_bytes() const override { return sizeof(double) * static_cast<size_t>(Partials(count())); }
  absl::Status Run(const KernelArguments& arguments) override {
    auto* partials = reinterpret_cast<double*>(arguments.workspace.data());
    const int64_t blocks = Partials(count());
    FUSIONLLM_RETURN_IF_ERROR(LaunchStatus(Launch(stream(), static_cast<unsigned>(blocks), kThreads, 0, SumSquaredDifferences,
                                                  arguments.inputs[0].f32(), arguments.inputs[1].f32(), count(), partials)));
    return LaunchStatus(Launch(stream(), 1, kThreads, 0, MeanOfPartials, static_cast<const double*>(partials), blocks, count(),
                               arguments.outputs[0].f32()));
  }

 private:
  int64_t count() const { return op_.in(0).elements(); }
};

class MseGrad : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    const int64_t count = op_.in(0).elements();
    return LaunchStatus(Launch(stream(), BlocksFor(count), kThreads, 0, DifferenceGradients, arguments.inputs[0].f32(),
                               arguments.inputs[1].f32(), arguments.inputs[2].f32(), arguments.outputs[0].f32(), count));
  }
};

}  // namespace

std::span<const Entry> LossKernels() {
  static constexpr Entry kEntries[] = {OnBothTypes<CrossEntropy>(OpKind::kCrossEntropy, "b-", "f-ff"),
                                       OnBothTypes<CrossEntropyGrad>(OpKind::kCrossEntropyGrad, "b-ff", "b"),
                                       {OpKind::kMse, Make<Mse>},
                                       {OpKind::kMseGrad, Make<MseGrad>}};
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
