#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/pluralize.h"
#include "lib/base/status_macros.h"
#include "lib/job/model_config.h"
#include "lib/models/family.h"
#include "lib/opdag/target_weights.h"
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

// "[b, 32, 32, 3]": as the text form of graphs writes the shape of a placeholder.
std::string ShapeText(const tensor::Shape& sample) {
  std::vector<std::string> extents = {"b"};
  for (const int64_t extent : sample.dims()) extents.push_back(absl::StrCat(extent));
  return absl::StrCat("[", absl::StrJoin(extents, ", "), "]");
}

// What would make samples of `given` fit the op.
std::string AdviceFor(const Workload& workload, const opdag::Op& op, const tensor::TensorType& given) {
  const job::Spec& spec = workload.job.spec;
  if (spec.model.graph.has_value()) {
    const std::string flat = given.shape.rank() > 1 ? absl::StrCat(" or [b, ", given.elements(), "]") : "";
    const std::string dtype =
        op.attributes.Text("dtype") == tensor::Name(given.dtype) ? "" : absl::StrCat("dtype=\"", tensor::Name(given.dtype), "\", ");
    const char* const field = job::IsOfTokens(spec.data.kind) ? ", or set spec.training.sequenceLength" : ", or choose other data";
    return absl::StrCat("; write ", dtype, "shape=", ShapeText(given.shape), flat, " there", field);
  }
  const models::Family* const family = job::FamilyOf(spec.model);
  return family == nullptr || IsTarget(op) ? "" : family->SampleAdvice(given.shape, spec.data.kind);
}

std::string Bytes(int64_t bytes) {
  const double count = static_cast<double>(bytes);
  if (bytes < 1000) return absl::StrCat(bytes, " B");
  if (bytes < 1'000'000) return absl::StrFormat("%.1f kB", count / 1e3);
  return bytes < 1'000'000'000 ? absl::StrFormat("%.1f MB", count / 1e6) : absl::StrFormat("%.1f GB", count / 1e9);
}

// "a.txt, b/c.txt, d.txt and 9 more".
std::string FirstOf(std::vector<std::string> names, int64_t count) {
  constexpr size_t kMaxNamed = 3;
  if (names.size() > kMaxNamed) names.resize(kMaxNamed);
  const int64_t more = count - static_cast<int64_t>(names.size());
  if (names.empty()) return base::Pluralize(count, "file");
  return absl::StrCat(absl::StrJoin(names, ", "), more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

// "2 files, 1.2 MB: a.txt, b/c.txt, in /data".
std::string DescribeFiles(const data::FilesRead& files) {
  std::vector<std::string> names;
  for (const data::FilesRead::File& file : files.first) names.push_back(files.NameOf(file.path));
  std::string text = absl::StrCat(base::Pluralize(files.count, "file"), ", ", Bytes(files.bytes), ": ",
                                  FirstOf(std::move(names), files.count), files.folder.empty() ? "" : absl::StrCat(", in ", files.folder));
  if (files.skipped_count == 0) return text;
  names.clear();
  for (const data::FilesRead::Skipped& file : files.skipped) names.push_back(absl::StrCat(files.NameOf(file.path), " (", file.why, ")"));
  return absl::StrCat(text, "; ", base::Pluralize(files.skipped_count, "file"),
                      " skipped: ", FirstOf(std::move(names), files.skipped_count));
}

// "ids of 16 bits, from 0 to 50256, 31402 distinct ones among the first 1048576; "
std::string DescribeIds(const data::FilesRead::TokenIds& ids) {
  const std::string all = ids.checked == ids.count ? "" : absl::StrCat(" among the first ", ids.checked);
  return absl::StrCat("ids of ", ids.bits, " bits, from ", ids.min_id, " to ", ids.max_id, ", ", ids.distinct, " distinct ones", all, "; ");
}

// "corpus.txt is", "a.txt, b.txt are".
std::string FilesAre(const data::FileSample& files) {
  return absl::StrCat(FirstOf(files.names, files.count), files.count == 1 ? " is" : " are");
}

}  // namespace

absl::Status CheckSamplesFit(const Workload& workload, const data::SampleType& sample) {
  const opdag::Graph& graph = workload.training.graph;
  const int64_t batch = workload.micro_batch_size;
  for (opdag::OpId id = 0; id < workload.training.forward_ops; ++id) {
    const opdag::Op& op = graph.op(id);
    if (op.kind != opdag::OpKind::kPlaceholder || op.attributes.Text("role") == opdag::kTargetWeightRole) continue;
    const tensor::TensorType& wanted = graph.value(op.outputs[0]).type;
    const tensor::TensorType& given = IsTarget(op) ? sample.target : sample.input;
    const tensor::TensorType whole = BatchOf(given, batch), flat = FlatBatchOf(given, batch);
    if (wanted == whole || wanted == flat) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "spec.data: %sop '%s' wants %s for %d samples, but one sample of spec.data is %s, so they are %s%s%s",
        PlaceOfOp(workload.job, workload.base_directory, op.name), op.name, wanted.ToString(), batch, given.ToString(), whole.ToString(),
        flat == whole ? "" : absl::StrCat(" or, flat, ", flat.ToString()), AdviceFor(workload, op, given)));
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
  const data::Dataset& dataset = evaluation ? EvaluationData() : *data_.training;
  std::vector<int64_t> indices(size);
  if (evaluation) {  // in file order
    FUSIONLLM_ASSIGN_OR_RETURN(indices, runtime::SamplesOfPass(dataset.size(), size, step * workload_.micro_batches + micro_batch));
  } else {
    for (int64_t i = 0; i < size; ++i) {
      indices[i] = sampler_.SampleAt(CursorAfter(step - 1).samples_consumed + micro_batch * size + i);
    }
  }
  const bool target = IsTarget(placeholder);
  const data::SampleType& sample = dataset.sample_type();
  const tensor::TensorView shaped{BatchOf(target ? sample.target : sample.input, size), out.data};
  const tensor::TensorView none{{}, nullptr};
  return target ? dataset.FillBatch(indices, none, shaped) : dataset.FillBatch(indices, shaped, none);
}

std::string DatasetSource::Summary() const {
  const job::Data& data = workload_.job.spec.data;
  const bool tokens = job::IsOfTokens(data.kind);
  const int64_t length = workload_.job.spec.training.sequence_length;
  const data::FilesRead& files = data_.training->files();
  std::string text = files.count > 0 ? absl::StrCat(DescribeFiles(files), "; ") : "";
  if (files.ids.has_value()) absl::StrAppend(&text, DescribeIds(*files.ids));
  absl::StrAppend(&text,
                  tokens ? absl::StrCat(base::Pluralize(data_.training->size(), "window"), " of ", base::Pluralize(length, "token"))
                         : base::Pluralize(data_.training->size(), "image"),
                  " to train on", EpochsText());
  if (data_.validation == nullptr) return text;
  const std::string held_out = absl::StrCat(data_.validation->size());
  if (workload_.data.validation_fraction > 0) {
    const bool even = workload_.data.held_out == data::ValidationSplit::kEven;
    return absl::StrCat(text, ", ", held_out, " held out for validation", EvaluatedText(), ", ",
                        even ? "drawn evenly over all of the data" : "the last ones of the data",
                        " (spec.data.validation.fraction: ", workload_.data.validation_fraction, ")");
  }
  const data::FileSample shared = data::SharedFiles(data_.validation->files(), data_.training->files());
  return absl::StrCat(text, "; ", held_out, " for validation", EvaluatedText(), ", of ", DescribeFiles(data_.validation->files()),
                      shared.count > 0 ? absl::StrCat("; ", FilesAre(shared), " trained on, too") : "");
}

// " (200 steps of 8 are 1.40 epochs)"
std::string DatasetSource::EpochsText() const {
  const job::Training& training = workload_.job.spec.training;
  if (training.steps == 0) return "";
  const double epochs =
      static_cast<double>(training.steps) * static_cast<double>(training.global_batch_size) / static_cast<double>(data_.training->size());
  const std::string count = epochs < 0.01 ? "less than 0.01"
                            : epochs < 10 ? absl::StrFormat("%.2f", epochs)
                                          : absl::StrFormat("%.0f", epochs);
  return absl::StrFormat(" (%s of %d %s %s epochs)", base::Pluralize(training.steps, "step"), training.global_batch_size,
                         training.steps == 1 ? "is" : "are", count);
}

// " (the first 128 in each evaluation, by spec.training.evaluation.batches)"
std::string DatasetSource::EvaluatedText() const {
  const job::Training& training = workload_.job.spec.training;
  if (training.evaluation.every_steps == 0 || !training.evaluation.batches) return "";
  const int64_t samples = *training.evaluation.batches * training.global_batch_size;
  if (samples >= data_.validation->size()) return "";
  return absl::StrCat(" (the first ", samples, " in each evaluation, by spec.training.evaluation.batches)");
}

std::vector<std::string> DatasetSource::Warnings() const {
  std::vector<std::string> warnings;
  const bool has_files = data_.validation != nullptr && workload_.data.validation_fraction == 0;  // of its own
  if (const data::FileSample shared =
          has_files ? data::SharedFiles(data_.validation->files(), data_.training->files()) : data::FileSample{};
      shared.count > 0) {
    warnings.push_back(
        absl::StrCat("spec.data.validation.path: ", FilesAre(shared), " also trained on (spec.data.path), so the validation loss ",
                     "says nothing of data that the model has not seen; hold out other files, or spec.data.validation.fraction"));
  }
  const auto repeated = [&](const char* field, const data::FilesRead& files, absl::string_view what) {
    const data::FileSample twice = data::RepeatedFiles(files);
    if (twice.count > 0) warnings.push_back(absl::StrCat(field, ": ", FilesAre(twice), " listed more than once, so ", what));
  };
  const bool held_out = workload_.data.validation_fraction > 0;
  repeated("spec.data.path", data_.training->files(),
           held_out ? "it counts as often, and what is held out for validation is trained on, too" : "it is trained on as often");
  if (has_files) repeated("spec.data.validation.path", data_.validation->files(), "it counts as often");
  const auto copied = [&](const char* field, const data::FilesRead& files, const std::vector<data::Copy>& copies, absl::string_view what) {
    constexpr double kFew = 0.01;  // of the bytes: licences in folders of code, say
    int64_t bytes = 0;
    std::vector<std::string> names;
    for (const data::Copy& copy : copies) {
      bytes += copy.bytes;
      names.push_back(absl::StrCat(copy.name, " is a copy of ", copy.of));
    }
    if (static_cast<double>(bytes) <= kFew * static_cast<double>(files.bytes)) return;
    const auto count = static_cast<int64_t>(copies.size());
    warnings.push_back(absl::StrCat(field, ": ", FirstOf(std::move(names), count), ", by size and by both ends; then ", what));
  };
  copied("spec.data.path", data_.training->files(), data::CopiedFiles(data_.training->files()),
         held_out ? "copied data counts as often, and what is held out for validation is trained on, too"
                  : "copied data is trained on as often");
  if (has_files) {
    copied("spec.data.validation.path", data_.validation->files(), data::CopiesOf(data_.validation->files(), data_.training->files()),
           "the validation loss says little of data that the model has not seen");
  }
  return warnings;
}

data::FilesRead DatasetSource::TrainingFiles() const { return data_.training->files(); }

data::FilesRead DatasetSource::ValidationFiles() const {
  return data_.validation != nullptr && workload_.data.validation_fraction == 0 ? data_.validation->files() : data::FilesRead{};
}

}  // namespace fusionllm::workload
