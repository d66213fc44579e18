#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/workload/workload.h"

namespace fusionllm::workload {
namespace {

bool IsTarget(const opdag::Op& placeholder) { return placeholder.attributes.Text("role") == "labels"; }

tensor::TensorType BatchOf(const tensor::TensorType& sample, int64_t batch) {
  std::vector<int64_t> dims = {batch};
  dims.insert(dims.end(), sample.shape.dims().begin(), sample.shape.dims().end());
  return {sample.dtype, tensor::Shape(std::move(dims))};
}

tensor::TensorType FlatBatchOf(const tensor::TensorType& sample, int64_t batch) { return {sample.dtype, {batch, sample.elements()}}; }

std::string AdviceFor(const Workload& workload, const tensor::TensorType& given) {
  const job::Spec& spec = workload.job.spec;
  if (spec.model.family != job::Family::kResnet || spec.data.kind != job::DataKind::kIdx || given.shape.rank() != 3) return "";
  const int64_t height = given.shape.dim(0), width = given.shape.dim(1);
  if (height != width) return "; family resnet takes square images";
  return absl::StrCat("; give spec.model.config.imageSize: ", height);
}

}  // namespace

absl::Status CheckSamplesFit(const Workload& workload, const data::SampleType& sample) {
  const opdag::Graph& graph = workload.training.graph;
  const int64_t batch = workload.micro_batch_size;
  for (opdag::OpId id = 0; id < workload.training.forward_ops; ++id) {
    const opdag::Op& op = graph.op(id);
    if (op.type != "placeholder") continue;
    const tensor::TensorType& wanted = graph.value(op.outputs[0]).type;
    const tensor::TensorType& given = IsTarget(op) ? sample.target : sample.input;
    const tensor::TensorType whole = BatchOf(given, batch), flat = FlatBatchOf(given, batch);
    if (wanted == whole || wanted == flat) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "op '%s' wants %s for %d samples, but one sample of spec.data is %s, so they are %s%s%s", op.name, wanted.ToString(), batch,
        given.ToString(), whole.ToString(), flat == whole ? "" : absl::StrCat(" or, flat, ", flat.ToString()), AdviceFor(workload, given)));
  }
  return absl::OkStatus();
}

DatasetSource::DatasetSource(const Workload& workload, data::TrainingData data, const data::Sampler& sampler)
    : workload_(workload), data_(std::move(data)), sampler_(sampler) {}

absl::StatusOr<std::unique_ptr<DatasetSource>> DatasetSource::Open(const Workload& workload) {
  FUSIONLLM_ASSIGN_OR_RETURN(data::TrainingData data, data::OpenTrainingData(workload.data));
  FUSIONLLM_RETURN_IF_ERROR(CheckSamplesFit(workload, data.training->sample_type()));
  FUSIONLLM_ASSIGN_OR_RETURN(const data::Sampler sampler,
                             data::Sampler::Create(data.training->size(), static_cast<uint64_t>(workload.job.spec.training.seed)));
  return std::unique_ptr<DatasetSource>(new DatasetSource(workload, std::move(data), sampler));
}

void DatasetSource::StartAt(int64_t first_step, data::DataCursor cursor) {
  first_step_ = first_step;
  start_ = cursor;
}

data::DataCursor DatasetSource::CursorAfter(int64_t step) const {
  return {start_.samples_consumed + (step - first_step_ + 1) * workload_.micro_batch_size * workload_.micro_batches};
}

absl::Status DatasetSource::Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) {
  const int64_t size = workload_.micro_batch_size;
  const int64_t global = size * workload_.micro_batches;
  const data::Dataset& dataset = evaluation && data_.validation != nullptr ? *data_.validation : *data_.training;
  std::vector<int64_t> indices(size);
  for (int64_t i = 0; i < size; ++i) {
    const int64_t offset = micro_batch * size + i;
    // Evaluation reads in file order and starts again when the data is short; training follows the seeded order.
    indices[i] =
        evaluation ? (step * global + offset) % dataset.size() : sampler_.SampleAt(CursorAfter(step - 1).samples_consumed + offset);
  }
  const bool target = IsTarget(placeholder);
  const data::SampleType& sample = dataset.sample_type();
  const tensor::TensorView shaped{BatchOf(target ? sample.target : sample.input, size), out.data};
  const tensor::TensorView none{{}, nullptr};
  return target ? dataset.FillBatch(indices, none, shaped) : dataset.FillBatch(indices, shaped, none);
}

int64_t DatasetSource::validation_batches() const {
  if (data_.validation == nullptr) return 0;
  const int64_t global = workload_.micro_batch_size * workload_.micro_batches;
  return (data_.validation->size() + global - 1) / global;
}

}  // namespace fusionllm::workload
