#include "lib/checkpoint/export.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/output_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/reader.h"
#include "lib/checkpoint/safetensors.h"

namespace fusionllm::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kCopyBytes = 1 << 20;

// Ours or one of another maker, whole or being written. A model.safetensors alone is not: it may be what an earlier export wrote.
bool HoldsCheckpoint(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / kManifestName, error) || fs::exists(folder / kIndexName, error)) return true;
  if (IsStagingName(folder.filename().string())) return true;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (IsNumberedShard(entry->path().filename().string())) return true;
  }
  return false;
}

absl::Status CheckNotRead(const CheckpointReader& reader, const std::string& out) {
  std::error_code ignored;
  for (const auto& [name, tensor] : reader.tensors()) {
    if (!fs::equivalent(tensor.file->path(), out, ignored)) continue;
    return absl::InvalidArgumentError(absl::StrCat(out, " is a file of the checkpoint that is to be exported: name another"));
  }
  return absl::OkStatus();
}

absl::Status Copy(const StoredTensor& tensor, SafetensorsWriter& writer, std::vector<std::byte>& chunk) {
  for (int64_t at = 0; at < tensor.entry->bytes();) {
    const std::span part(chunk.data(), static_cast<size_t>(std::min(kCopyBytes, tensor.entry->bytes() - at)));
    FUSIONLLM_RETURN_IF_ERROR(tensor.file->ReadBytes(*tensor.entry, at, part));
    FUSIONLLM_RETURN_IF_ERROR(writer.Append(part));
    at += static_cast<int64_t>(part.size());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WrittenFile> ExportModel(const std::string& path, const std::string& out) {
  FUSIONLLM_ASSIGN_OR_RETURN(const base::Replacement replacement, base::PrepareReplacement(out));
  for (const fs::path& folder : {fs::path(replacement.target).parent_path(), fs::absolute(out).parent_path()}) {
    if (!HoldsCheckpoint(folder)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(out, " would be a file of the checkpoint in ", folder.lexically_normal().string(), ": name a place outside of it"));
  }
  FUSIONLLM_RETURN_IF_ERROR(VerifyCheckpoint(path));
  FUSIONLLM_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(path));
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : reader.tensors()) {
    if (!reader.IsParameter(tensor)) continue;
    TensorSpec spec{name, {tensor.entry->dtype.value_or(tensor::DType::kU8), tensor.entry->shape}};
    if (!tensor.entry->dtype) spec.foreign = ForeignType{tensor.entry->dtype_name, tensor.entry->bytes()};
    specs.push_back(std::move(spec));
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckNotRead(reader, out));
  FUSIONLLM_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                             SafetensorsWriter::Create(replacement.temporary, std::move(specs), {{"format", "pt"}}));
  std::vector<std::byte> chunk(kCopyBytes);
  for (const TensorSpec& spec : writer.specs()) FUSIONLLM_RETURN_IF_ERROR(Copy(reader.tensors().at(spec.name), writer, chunk));
  FUSIONLLM_ASSIGN_OR_RETURN(const WrittenFile written, writer.Finish());
  FUSIONLLM_RETURN_IF_ERROR(base::CommitReplacement(replacement));
  FUSIONLLM_RETURN_IF_ERROR(base::SyncFolder(fs::path(replacement.target).parent_path().string()));
  return written;
}

}  // namespace fusionllm::checkpoint
