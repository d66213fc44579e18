#include "lib/checkpoint/export.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/reader.h"
#include "lib/checkpoint/safetensors.h"

namespace fusionllm::checkpoint {
namespace {

constexpr int64_t kChunk = 1 << 20;

absl::Status Copy(const StoredTensor& tensor, SafetensorsWriter& writer, std::vector<std::byte>& chunk) {
  for (int64_t at = 0; at < tensor.entry->bytes();) {
    const std::span part(chunk.data(), static_cast<size_t>(std::min(kChunk, tensor.entry->bytes() - at)));
    FUSIONLLM_RETURN_IF_ERROR(tensor.file->ReadBytes(*tensor.entry, at, part));
    FUSIONLLM_RETURN_IF_ERROR(writer.Append(part));
    at += static_cast<int64_t>(part.size());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WrittenFile> ExportModel(const std::string& path, const std::string& out) {
  std::error_code ignored;
  if (const auto there = std::filesystem::status(out, ignored).type();
      there != std::filesystem::file_type::not_found && there != std::filesystem::file_type::regular) {
    return absl::InvalidArgumentError(absl::StrCat(out, " is not a regular file: it would be replaced"));
  }
  FUSIONLLM_RETURN_IF_ERROR(VerifyCheckpoint(path));
  FUSIONLLM_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(path));
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : reader.tensors()) {
    if (!reader.IsParameter(tensor)) continue;
    if (!tensor.entry->dtype) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", name, "' of ", tensor.file->path(), " has the dtype ", tensor.entry->dtype_name));
    }
    specs.push_back({name, {*tensor.entry->dtype, tensor.entry->shape}});
  }
  const std::string partial = absl::StrCat(out, ".partial");
  FUSIONLLM_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(partial, std::move(specs), {{"format", "pt"}}));
  std::vector<std::byte> chunk(kChunk);
  for (const TensorSpec& spec : writer.specs()) FUSIONLLM_RETURN_IF_ERROR(Copy(reader.tensors().at(spec.name), writer, chunk));
  FUSIONLLM_ASSIGN_OR_RETURN(const WrittenFile written, writer.Finish());
  if (absl::Status status = Rename(partial, out); !status.ok()) {
    RemoveTree(partial).IgnoreError();  // the first error is the one to tell
    return status;
  }
  const std::string folder = std::filesystem::path(out).parent_path().string();
  FUSIONLLM_RETURN_IF_ERROR(SyncFolder(folder.empty() ? "." : folder));
  return written;
}

}  // namespace fusionllm::checkpoint
