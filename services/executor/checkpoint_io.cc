#include "services/executor/checkpoint_io.h"

#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/manifest.h"
#include "lib/checkpoint/reader.h"
#include "lib/checkpoint/writer.h"

namespace fusionllm::services {
namespace {

// Tensors copied out of a store, so that training goes on while they are written.
struct Snapshot {
  std::vector<std::pair<std::string, tensor::Tensor>> model, optimizer;
};

void Copy(const std::string& name, tensor::TensorView view, std::vector<std::pair<std::string, tensor::Tensor>>& out) {
  out.emplace_back(name, tensor::Tensor(view.type));
  std::memcpy(out.back().second.as<std::byte>(), view.data, view.type.bytes());
}

std::vector<checkpoint::NamedTensor> Views(std::vector<std::pair<std::string, tensor::Tensor>>& tensors) {
  std::vector<checkpoint::NamedTensor> views;
  for (auto& [name, tensor] : tensors) views.push_back({.name = name, .view = tensor.view()});
  return views;
}

}  // namespace

absl::Status RestoreStage(const std::string& path, bool with_state, runtime::ParameterStore& store) {
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::CheckpointReader reader, checkpoint::CheckpointReader::Open(path));
  absl::Status first;
  const auto read = [&](const std::string& name, tensor::TensorView view) {
    if (!first.ok()) return;
    const absl::Status status = reader.Read(name, view);
    if (!status.ok()) first = absl::Status(status.code(), absl::StrCat(path, ": ", std::string(status.message())));
  };
  store.ForEachParameter(read, /*owned_only=*/false);
  if (with_state) store.ForEachState(read, /*owned_only=*/false);
  return first;
}

absl::StatusOr<CheckpointPosition> ReadPosition(const std::string& checkpoint) {
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::Manifest manifest, checkpoint::LoadManifest(checkpoint));
  return CheckpointPosition{.step = manifest.step, .samples_consumed = manifest.samples_consumed};
}

void ShardWriter::Wait() {
  if (thread_.joinable()) thread_.join();
}

void ShardWriter::Save(uint32_t epoch, int64_t step, int stage, int stages, int64_t samples_consumed, runtime::ParameterStore& store) {
  Wait();
  auto snapshot = std::make_shared<Snapshot>();
  store.ForEachParameter([&](const std::string& name, tensor::TensorView view) { Copy(name, view, snapshot->model); }, /*owned_only=*/true);
  store.ForEachState([&](const std::string& name, tensor::TensorView view) { Copy(name, view, snapshot->optimizer); }, /*owned_only=*/true);
  thread_ = std::thread([this, epoch, step, stage, stages, samples_consumed, snapshot] {
    v1::ShardReport report;
    report.set_epoch(epoch);
    report.set_step(step);
    report.set_stage(stage);
    report.set_samples_consumed(samples_consumed);
    const absl::StatusOr<std::vector<checkpoint::FileEntry>> files =
        checkpoint::WriteShard(directory_, step, stage, stages, {.model = Views(snapshot->model), .optimizer = Views(snapshot->optimizer)});
    if (!files.ok()) report.set_error(std::string(files.status().message()));
    for (const checkpoint::FileEntry& file : files.ok() ? *files : std::vector<checkpoint::FileEntry>()) {
      v1::ShardFile& out = *report.add_files();
      out.set_name(file.name);
      out.set_bytes(file.bytes);
      out.set_sha256(file.sha256);
      for (const std::string& tensor : file.tensors) out.add_tensors(tensor);
    }
    done_(std::move(report));
  });
}

}  // namespace fusionllm::services
