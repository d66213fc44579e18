#include "lib/kernels/cpu/direct_convolution.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/kernels/convolution_shape.h"
#include "lib/kernels/cpu/onednn.h"
#include "lib/kernels/cpu/row_sums.h"
#include "lib/kernels/cpu/vector/spans.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace fusionllm::kernels::cpu {
namespace {

using Tag = dnnl::memory::format_tag;
using Dims = dnnl::memory::dims;
constexpr dnnl::algorithm kDirect = dnnl::algorithm::convolution_direct;

const dnnl::engine& Engine() {
  static const auto* const engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

dnnl::memory::desc Desc(const Dims& dims, Tag tag) { return {dims, dnnl::memory::data_type::f32, tag}; }

// As many equal chunks of the batch as leave each at least `min_pixels` output pixels: below, streaming the weights costs more than the
// arithmetic.
int64_t BatchChunks(const ConvolutionShape& s, int64_t min_pixels) {
  for (const int64_t chunks : {8, 4, 2}) {
    if (s.batch % chunks == 0 && s.batch / chunks * s.out_height * s.out_width >= min_pixels) return chunks;
  }
  return 1;
}

// Everything oneDNN needs to know about one chunk of the batch.
struct Descriptors {
  Descriptors(const ConvolutionShape& s, int64_t images)
      : images(images),
        x(Desc({images, s.in_channels, s.in_height, s.in_width}, Tag::nhwc)),
        y(Desc({images, s.out_channels, s.out_height, s.out_width}, Tag::nhwc)),
        user_weights(Desc(WeightDims(s), s.groups > 1 ? Tag::goihw : Tag::oihw)),
        any_weights(Desc(WeightDims(s), Tag::any)),
        stride{s.stride[0], s.stride[1]},
        dilation{s.dilation[0] - 1, s.dilation[1] - 1},
        padding{s.padding[0], s.padding[1]} {
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  }

  static Dims WeightDims(const ConvolutionShape& s) {
    if (s.groups == 1) return {s.out_channels, s.in_channels, s.kernel[0], s.kernel[1]};
    return {s.groups, s.out_channels / s.groups, s.in_channels / s.groups, s.kernel[0], s.kernel[1]};
  }

#if DNNL_VERSION_MAJOR >= 3
  dnnl::convolution_forward::primitive_desc Forward() const {
    return {Engine(), dnnl::prop_kind::forward_training, kDirect, x, any_weights, y, stride, dilation, padding, padding, attributes};
  }
  dnnl::convolution_backward_data::primitive_desc GradInput() const {
    return {Engine(), kDirect, x, any_weights, y, stride, dilation, padding, padding, Forward(), attributes};
  }
  dnnl::convolution_backward_weights::primitive_desc GradWeight() const {
    return {Engine(), kDirect, x, any_weights, y, stride, dilation, padding, padding, Forward(), attributes};
  }
#else
  dnnl::convolution_forward::primitive_desc Forward() const {
    return {{dnnl::prop_kind::forward_training, kDirect, x, any_weights, y, stride, dilation, padding, padding}, attributes, Engine()};
  }
  dnnl::convolution_backward_data::primitive_desc GradInput() const {
    return {{kDirect, x, any_weights, y, stride, dilation, padding, padding}, attributes, Engine(), Forward()};
  }
  dnnl::convolution_backward_weights::primitive_desc GradWeight() const {
    return {{kDirect, x, any_weights, y, stride, dilation, padding, padding}, attributes, Engine(), Forward()};
  }
#endif

  int64_t images;
  dnnl::memory::desc x, y, user_weights, any_weights;
  Dims stride, dilation, padding;
  dnnl::primitive_attr attributes;
};

size_t Align(size_t bytes) { return (bytes + tensor::kAlignment - 1) / tensor::kAlignment * tensor::kAlignment; }

dnnl::memory Memory(const dnnl::memory::desc& desc, const void* data) { return {desc, Engine(), const_cast<void*>(data)}; }

void Reorder(const dnnl::memory::desc& from_desc, const void* from, const dnnl::memory::desc& to_desc, void* to) {
  dnnl::stream stream(Engine());
  dnnl::memory source = Memory(from_desc, from), target = Memory(to_desc, to);
  dnnl::reorder(source, target).execute(stream, source, target);
}

// oneDNN's C++ interface throws; kernels do not.
template <typename Body>
absl::Status Guard(const PreparedOp& op, Body body) {
  try {
    body();
    return absl::OkStatus();
  } catch (const dnnl::error& error) {
    return absl::InternalError(absl::StrCat(op.Prefix(), "oneDNN: ", error.what()));
  }
}

// A convolution of x or a gradient for x: images in, images out, weights read. Workspace: reordered weights, then a scratchpad per slot.
template <typename Primitive>
class ImageKernel : public PooledKernel {
 public:
  using PrimitiveDesc = typename Primitive::primitive_desc;

  ImageKernel(PreparedOp op, std::shared_ptr<WorkerPool> pool, const ConvolutionShape& s, const Descriptors& d, PrimitiveDesc desc,
              const dnnl::memory::desc& from, const dnnl::memory::desc& to, int from_argument, int to_argument)
      : PooledKernel(std::move(op), std::move(pool)),
        shape_(s),
        user_weights_(d.user_weights),
        weights_(desc.weights_desc()),
        from_(from),
        to_(to),
        from_argument_(from_argument),
        to_argument_(to_argument),
        scratchpad_(desc.scratchpad_desc()),
        primitive_(desc),
        chunks_(s.batch / d.images) {}

  size_t workspace_bytes() const override { return WeightBytes() + pool_->threads() * Align(scratchpad_.get_size()); }

  absl::Status Run(const KernelArguments& arguments) override {
    return Guard(op_, [&] {
      const SingleThreadedOneDnn single_threaded;
      const void* weights = arguments.parameters[0].data;
      if (WeightBytes() > 0) {
        Reorder(user_weights_, weights, weights_, arguments.workspace.data());
        weights = arguments.workspace.data();
      }
      const float* bias = op_.parameters.size() > 1 ? arguments.parameters[1].f32() : nullptr;
      pool_->Run(chunks_, [&](int64_t chunk, int slot) {
        float* out = arguments.outputs[0].f32() + chunk * (to_.get_size() / sizeof(float));
        Execute(arguments.inputs[0].f32() + chunk * (from_.get_size() / sizeof(float)), weights, out,
                arguments.workspace.data() + WeightBytes() + slot * Align(scratchpad_.get_size()));
        if (bias != nullptr) AddBias(bias, out);
      });
    });
  }

 private:
  size_t WeightBytes() const { return weights_ == user_weights_ ? 0 : Align(weights_.get_size()); }

  void Execute(const float* from, const void* weights, float* to, void* scratchpad) const {
    dnnl::stream stream(Engine());
    primitive_.execute(stream, {{from_argument_, Memory(from_, from)},
                                {DNNL_ARG_WEIGHTS, Memory(weights_, weights)},
                                {to_argument_, Memory(to_, to)},
                                {DNNL_ARG_SCRATCHPAD, Memory(scratchpad_, scratchpad)}});
  }

  void AddBias(const float* bias, float* y) const {
    const auto count = static_cast<int64_t>(to_.get_size() / sizeof(float));
    for (int64_t i = 0; i < count; i += shape_.out_channels) AddTo(bias, y + i, shape_.out_channels);
  }

  const ConvolutionShape shape_;
  const dnnl::memory::desc user_weights_, weights_, from_, to_;
  const int from_argument_, to_argument_;
  const dnnl::memory::desc scratchpad_;
  const Primitive primitive_;
  const int64_t chunks_;
};

// Workspace: a weight gradient per chunk in oneDNN's layout, one in OIHW, then a scratchpad per slot.
class WeightKernel : public PooledKernel {
 public:
  WeightKernel(PreparedOp op, std::shared_ptr<WorkerPool> pool, const ConvolutionShape& s, const Descriptors& d,
               const dnnl::convolution_backward_weights::primitive_desc& desc)
      : PooledKernel(std::move(op), std::move(pool)),
        shape_(s),
        x_(d.x),
        y_(d.y),
        user_weights_(d.user_weights),
        weights_(desc.diff_weights_desc()),
        scratchpad_(desc.scratchpad_desc()),
        primitive_(desc),
        chunks_(s.batch / d.images) {}

  size_t workspace_bytes() const override {
    return std::max(chunks_ * WeightBytes() + Align(user_weights_.get_size()) + pool_->threads() * Align(scratchpad_.get_size()),
                    RowSumsWorkspaceBytes(Pixels(), shape_.out_channels));
  }

  absl::Status Run(const KernelArguments& arguments) override {
    return Guard(op_, [&] {
      const SingleThreadedOneDnn single_threaded;
      if (float* dw = OutputOrNull(arguments, 0); dw != nullptr) GradWeight(arguments, dw);
      if (float* dbias = op_.outputs.size() > 1 ? OutputOrNull(arguments, 1) : nullptr; dbias != nullptr) {
        SumRows(*pool_, arguments.inputs[1].f32(), Pixels(), shape_.out_channels, Accumulates(arguments, 1),
                reinterpret_cast<float*>(arguments.workspace.data()), dbias);
      }
    });
  }

 private:
  size_t WeightBytes() const { return Align(weights_.get_size()); }
  int64_t Pixels() const { return shape_.batch * shape_.out_height * shape_.out_width; }

  void GradWeight(const KernelArguments& arguments, float* dw) const {
    std::byte* partials = arguments.workspace.data();
    std::byte* plain = partials + chunks_ * WeightBytes();
    std::byte* scratchpads = plain + Align(user_weights_.get_size());
    pool_->Run(chunks_, [&](int64_t chunk, int slot) {
      dnnl::stream stream(Engine());
      primitive_.execute(stream, {{DNNL_ARG_SRC, Memory(x_, arguments.inputs[0].f32() + chunk * (x_.get_size() / sizeof(float)))},
                                  {DNNL_ARG_DIFF_DST, Memory(y_, arguments.inputs[1].f32() + chunk * (y_.get_size() / sizeof(float)))},
                                  {DNNL_ARG_DIFF_WEIGHTS, Memory(weights_, partials + chunk * WeightBytes())},
                                  {DNNL_ARG_SCRATCHPAD, Memory(scratchpad_, scratchpads + slot * Align(scratchpad_.get_size()))}});
    });
    auto* sum = reinterpret_cast<float*>(partials);
    const auto padded = static_cast<int64_t>(weights_.get_size() / sizeof(float));
    for (int64_t chunk = 1; chunk < chunks_; ++chunk) AddTo(reinterpret_cast<float*>(partials + chunk * WeightBytes()), sum, padded);
    if (!Accumulates(arguments, 0)) return Reorder(weights_, partials, user_weights_, dw);
    Reorder(weights_, partials, user_weights_, plain);
    AddTo(reinterpret_cast<const float*>(plain), dw, op_.out(0).elements());
  }

  const ConvolutionShape shape_;
  const dnnl::memory::desc x_, y_, user_weights_, weights_, scratchpad_;
  const dnnl::convolution_backward_weights primitive_;
  const int64_t chunks_;
};

constexpr int64_t kImagePixels = 256;    // of a chunk: the reordered weights are read once for each
constexpr int64_t kWeightPixels = 1024;  // of a chunk: a partial weight gradient is written and summed for each

template <typename Body>
KernelOrError Prepare(PreparedOp op, Body make) {
  const SingleThreadedOneDnn single_threaded;  // oneDNN picks implementations by the number of threads
  std::unique_ptr<Kernel> kernel;
  const absl::Status status = Guard(op, [&] { kernel = make(op); });
  if (!status.ok()) return status;
  return kernel;
}

}  // namespace

KernelOrError MakeDirectConvolution(PreparedOp op, std::shared_ptr<WorkerPool> pool) {
  return Prepare(std::move(op), [&](const PreparedOp& prepared) {
    const ConvolutionShape s = ConvolutionShapeOf(prepared, prepared.in(0), prepared.out(0));
    const Descriptors d(s, s.batch / BatchChunks(s, kImagePixels));
    return std::make_unique<ImageKernel<dnnl::convolution_forward>>(prepared, std::move(pool), s, d, d.Forward(), d.x, d.y, DNNL_ARG_SRC,
                                                                    DNNL_ARG_DST);
  });
}

KernelOrError MakeDirectConvolutionGradInput(PreparedOp op, std::shared_ptr<WorkerPool> pool) {
  return Prepare(std::move(op), [&](const PreparedOp& prepared) {
    const ConvolutionShape s = ConvolutionShapeOf(prepared, prepared.out(0), prepared.in(0));
    const Descriptors d(s, s.batch / BatchChunks(s, kImagePixels));
    return std::make_unique<ImageKernel<dnnl::convolution_backward_data>>(prepared, std::move(pool), s, d, d.GradInput(), d.y, d.x,
                                                                          DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC);
  });
}

KernelOrError MakeDirectConvolutionGradWeight(PreparedOp op, std::shared_ptr<WorkerPool> pool) {
  return Prepare(std::move(op), [&](const PreparedOp& prepared) {
    const ConvolutionShape s = ConvolutionShapeOf(prepared, prepared.in(0), prepared.in(1));
    const Descriptors d(s, s.batch / BatchChunks(s, kWeightPixels));
    return std::make_unique<WeightKernel>(prepared, std::move(pool), s, d, d.GradWeight());
  });
}

}  // namespace fusionllm::kernels::cpu
