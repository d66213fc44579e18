#include "services/executor/checkpoint_io.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/object_uri.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/hashed_file.h"
#include "lib/checkpoint/reader.h"
#include "lib/job/initial_model.h"
#include "lib/runtime/device_throttle.h"
#include "lib/workload/stored_parameters.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/executor/local_access.h"
#include "services/machine_identity.h"

namespace fusionllm::services {
namespace {

constexpr int64_t kMinTokenBytes = 16, kMaxTokenBytes = 256;

// Tensors copied out of a store, so that training goes on while they are written.
struct Snapshot {
  std::vector<std::pair<std::string, tensor::Tensor>> model, optimizer, residuals;
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

// The stage's tensors by name, in the order in which they are visited.
CheckpointClient::Wanted TensorsOf(runtime::ParameterStore& store, bool with_state) {
  CheckpointClient::Wanted wanted;
  const auto add = [&](const std::string& name, tensor::TensorView view) { wanted.emplace_back(name, view); };
  store.ForEachParameter(add, /*owned_only=*/false);
  if (with_state) store.ForEachState(add, /*owned_only=*/false);
  return wanted;
}

int64_t BytesOf(const CheckpointClient::Wanted& wanted) {
  int64_t bytes = 0;
  for (const auto& [name, view] : wanted) bytes += static_cast<int64_t>(view.type.bytes());
  return bytes;
}

// Takes out of `wanted` what it has read; what lies in other sites stays.
absl::StatusOr<CheckpointPosition> ReadFiles(const checkpoint::CheckpointReader& reader, CheckpointClient::Wanted& wanted) {
  std::set<std::string> elsewhere;
  for (const checkpoint::FileEntry& file : reader.files_in_other_sites()) elsewhere.insert(file.tensors.begin(), file.tensors.end());
  CheckpointClient::Wanted left;
  for (const auto& [name, view] : wanted) {
    if (elsewhere.contains(name)) {
      left.emplace_back(name, view);
      continue;
    }
    FUSIONLLM_RETURN_IF_ERROR(reader.Read(name, view));
  }
  wanted = std::move(left);
  if (!reader.manifest().has_value()) return CheckpointPosition{};
  return CheckpointPosition{.step = reader.manifest()->step, .samples_consumed = reader.manifest()->samples_consumed};
}

}  // namespace

SharedFiles::SharedFiles(const v1::Welcome& welcome, bool of_the_run)
    : same_machine_(of_the_run && !welcome.machine().empty() && welcome.machine() == MachineIdentity()) {
  const std::string& file = welcome.shared_token_file();
  // An empty token would be any empty file's.
  if (file.empty() || welcome.shared_token().size() < kMinTokenBytes) return;
  const absl::StatusOr<std::string> token = base::ReadSmallFile(file, kMaxTokenBytes);
  // Not there: this machine has no such folder, as most that join.
  if (!token.ok() && !absl::IsNotFound(token.status())) {
    base::Log(base::LogLevel::kWarning,
              absl::StrCat("the folder of checkpoints is not shared, the broker is sent them: ", token.status().message()));
  }
  if (!token.ok() || *token != welcome.shared_token()) return;
  const std::string folder = std::filesystem::path(file).parent_path().string();
  if (access(folder.c_str(), W_OK | X_OK) == 0) folder_ = folder;
}

bool SharedFiles::Has(const std::string& path) const {
  // Where links and ".." lead counts, not how it is spelt.
  return same_machine_ || (!folder_.empty() && IsInsideFolder(path, folder_));
}

absl::Status StageRestorer::ReadFromSite(const v1::SiteFile& file, CheckpointClient::Wanted& wanted) const {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string path, site_->PathOf(file.site_folder(), file.name()));
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::SafetensorsFile opened, checkpoint::SafetensorsFile::Open(path));
  const auto here = [&](const auto& tensor) {
    return std::any_of(opened.tensors().begin(), opened.tensors().end(), [&](const auto& entry) { return entry.name == tensor.first; });
  };
  const auto rest = std::stable_partition(wanted.begin(), wanted.end(), [&](const auto& tensor) { return !here(tensor); });
  if (rest == wanted.end()) return absl::OkStatus();
  // As the committer looks at its own before it says what is restored.
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string sum, checkpoint::Sha256OfFile(path));
  if (sum != file.sha256()) return absl::DataLossError(absl::StrCat(path, " has the checksum ", sum, " instead of ", file.sha256()));
  for (auto tensor = rest; tensor != wanted.end(); ++tensor) FUSIONLLM_RETURN_IF_ERROR(opened.Read(tensor->first, tensor->second));
  wanted.erase(rest, wanted.end());
  return absl::OkStatus();
}

absl::StatusOr<CheckpointPosition> StageRestorer::Read(uint32_t epoch, const std::string& checkpoint, const SiteFiles& site_files,
                                                       const CheckpointClient::Wanted& wanted) const {
  CheckpointClient::Wanted left = wanted;
  const bool shared = shared_.Has(checkpoint);
  CheckpointPosition position;
  if (shared) {
    FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::CheckpointReader reader,
                               checkpoint::CheckpointReader::Open(checkpoint, checkpoint::SiteFilesPolicy::kSkip));
    FUSIONLLM_ASSIGN_OR_RETURN(position, ReadFiles(reader, left));
    if (left.empty()) return position;
  }
  const int64_t here = BytesOf(left);
  for (const v1::SiteFile& file : site_files) {
    if (site_ == nullptr || left.empty()) break;
    if (const absl::Status read = ReadFromSite(file, left); !read.ok()) {
      base::Log(base::LogLevel::kWarning, absl::StrCat("asking the broker instead: ", std::string(read.message())));
    }
  }
  // Where nothing is left to ask for it still tells the position.
  if (!shared || !left.empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(position, client_.Fetch(epoch, v1::FetchTensorsRequest::RESTORE, left));
  }
  base::Log(base::LogLevel::kInfo,
            absl::StrCat("restored ", here - BytesOf(left), " bytes from this site and ", BytesOf(left), " from the broker"));
  return position;
}

absl::StatusOr<CheckpointPosition> StageRestorer::Restore(uint32_t epoch, const std::string& checkpoint, const SiteFiles& site_files,
                                                          runtime::StageExecutor& stage, const std::vector<std::string>& residuals) const {
  CheckpointClient::Wanted wanted = TensorsOf(stage.store(), /*with_state=*/true);
  for (const std::string& name : residuals) wanted.emplace_back(name, stage.residual(name));
  FUSIONLLM_ASSIGN_OR_RETURN(const CheckpointPosition position, Read(epoch, checkpoint, site_files, wanted));
  FUSIONLLM_RETURN_IF_ERROR(stage.PushToDevice());
  return position;
}

absl::Status StageRestorer::Initialize(uint32_t epoch, const std::string& path, const workload::Workload& workload,
                                       runtime::ParameterStore& store) const {
  CheckpointClient::Wanted wanted = TensorsOf(store, /*with_state=*/false);
  const std::vector<std::string>& skip = workload.job.spec.model.init.skip;
  std::erase_if(wanted, [&](const auto& tensor) { return job::MatchesAny(skip, tensor.first); });
  // What lies in an object store has the broker fetched, and compared.
  const bool here = !base::IsUri(path) && shared_.Has(path);
  if (here) {
    FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::CheckpointReader reader,
                               base::AsBadInputIfPermanent(checkpoint::CheckpointReader::Open(path, checkpoint::SiteFilesPolicy::kSkip)));
    FUSIONLLM_RETURN_IF_ERROR(base::AsBadInputIfPermanent(workload::CheckStart(workload.job, workload.training.graph, reader).status()));
    std::erase_if(wanted, [&](const auto& tensor) { return workload::BeginsAtZero(tensor.second.type, reader, tensor.first); });
    FUSIONLLM_RETURN_IF_ERROR(base::AsBadInputIfPermanent(ReadFiles(reader, wanted).status()));
  }
  if (!wanted.empty()) FUSIONLLM_RETURN_IF_ERROR(client_.Fetch(epoch, v1::FetchTensorsRequest::INIT, wanted).status());
  return store.PushToDevice();
}

ShardWriter::Store StoreFor(const SharedFiles& shared, const std::string& directory, checkpoint::SiteStore* site,
                            CheckpointClient& client) {
  if (shared.HasCheckpoints(directory)) {
    return [directory](uint32_t, int64_t step, int stage, int stages, const checkpoint::ShardContents& contents) {
      return checkpoint::WriteShard(directory, step, stage, stages, contents);
    };
  }
  if (site != nullptr) {
    return [site](uint32_t epoch, int64_t step, int stage, int stages, const checkpoint::ShardContents& contents) {
      return site->Write(epoch, step, stage, stages, contents);
    };
  }
  return [&client](uint32_t epoch, int64_t step, int stage, int stages, const checkpoint::ShardContents& contents) {
    return client.PutShard(epoch, step, stage, stages, contents);
  };
}

void ShardWriter::Wait() {
  if (thread_.joinable()) thread_.join();
}

void ShardWriter::Save(uint32_t epoch, int64_t step, int stage, int stages, int64_t samples_consumed, runtime::StageExecutor& executor) {
  Wait();
  const int64_t begin_ns = runtime::MonotonicNanoseconds();
  runtime::ParameterStore& store = executor.store();
  if (const absl::Status pulled = executor.PullToHost(); !pulled.ok()) {
    v1::ShardReport report;
    report.set_epoch(epoch);
    report.set_step(step);
    report.set_stage(stage);
    report.set_error(std::string(pulled.message()));
    return done_(std::move(report));
  }
  auto snapshot = std::make_shared<Snapshot>();
  store.ForEachParameter([&](const std::string& name, tensor::TensorView view) { Copy(name, view, snapshot->model); }, /*owned_only=*/true);
  store.ForEachState([&](const std::string& name, tensor::TensorView view) { Copy(name, view, snapshot->optimizer); }, /*owned_only=*/true);
  for (const std::string& name : executor.residual_names()) Copy(name, executor.residual(name), snapshot->residuals);
  thread_ = std::thread([this, epoch, step, stage, stages, samples_consumed, snapshot, begin_ns] {
    v1::ShardReport report;
    report.set_epoch(epoch);
    report.set_step(step);
    report.set_stage(stage);
    report.set_samples_consumed(samples_consumed);
    const absl::StatusOr<std::vector<checkpoint::FileEntry>> files =
        store_(epoch, step, stage, stages,
               {.model = Views(snapshot->model), .optimizer = Views(snapshot->optimizer), .residuals = Views(snapshot->residuals)});
    if (absl::IsCancelled(files.status())) return;
    report.set_seconds(static_cast<double>(runtime::MonotonicNanoseconds() - begin_ns) * 1e-9);
    if (!files.ok()) report.set_error(std::string(files.status().message()));
    report.set_site(site_);
    for (const checkpoint::FileEntry& file : files.ok() ? *files : std::vector<checkpoint::FileEntry>()) {
      v1::ShardFile& out = *report.add_files();
      out.set_name(file.name);
      out.set_bytes(file.bytes);
      out.set_sha256(file.sha256);
      for (const std::string& tensor : file.tensors) out.add_tensors(tensor);
      out.set_site_folder(file.site_folder);
      if (!site_.empty()) out.set_tensor_bytes(file.tensor_bytes);
    }
    done_(std::move(report));
  });
}

}  // namespace fusionllm::services
