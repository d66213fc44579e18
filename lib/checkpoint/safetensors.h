// One .safetensors file: writing it in one pass, and reading single tensors of it.
//
// Compatible both ways with the format's Python package. Little-endian machines only, as everywhere in this project.
#pragma once

#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/source_file.h"
#include "lib/checkpoint/hashed_file.h"
#include "lib/checkpoint/safetensors_header.h"
#include "lib/checkpoint/safetensors_image.h"

namespace fusionllm::checkpoint {

// Writes `tensors`, which need to live only during the call, and syncs the file. On an error no file is left.
// Metadata {"format": "pt"} is what Hugging Face's loaders ask for. Blocks. Errors: those of HashedFile and FormatSafetensorsHeader.
absl::StatusOr<WrittenFile> WriteSafetensors(const std::string& path, std::span<const NamedTensor> tensors,
                                             const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

// The same for tensors that are laid out already.
absl::StatusOr<WrittenFile> WriteImage(const std::string& path, const SafetensorsImage& image);

// The same piece by piece, for data that is never whole in memory: Create, then the bytes of specs() in that order, then Finish.
class SafetensorsWriter {
 public:
  static absl::StatusOr<SafetensorsWriter> Create(const std::string& path, std::vector<TensorSpec> specs,
                                                  const std::map<std::string, std::string>& metadata);
  const std::vector<TensorSpec>& specs() const { return specs_; }
  absl::Status Append(std::span<const std::byte> bytes) {
    appended_ += static_cast<int64_t>(bytes.size());
    return file_.Write(bytes);
  }
  // FailedPrecondition when the bytes are not as many as the specs ask for; then no file is left.
  absl::StatusOr<WrittenFile> Finish();

 private:
  SafetensorsWriter(HashedFile file, std::vector<TensorSpec> specs) : file_(std::move(file)), specs_(std::move(specs)) {}
  HashedFile file_;
  std::vector<TensorSpec> specs_;
  int64_t appended_ = 0;
};

// A file open for reading. Movable; reads may run on several threads at once. Every offset is checked when it is opened.
class SafetensorsFile {
 public:
  // Errors: NotFound, Unavailable; InvalidArgument for a file that is cut off, or whose header breaks a rule of the format (names the file
  // and the tensor); Unimplemented for a zip of torch.save and for what is beyond the limits of ParseSafetensorsHeader. Memory use is
  // bounded by the size of the header, which is at most the size of the file and kMaxHeaderBytes.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  int64_t size() const { return file_.size(); }
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const TensorEntry* Find(absl::string_view name) const;  // null when there is none

  // Reads a tensor into memory of its shape and dtype, or of dtype f32 when it is stored as f16 or bf16.
  // Errors: NotFound for the name; InvalidArgument when shape or dtype differ (names both); DataLoss, Unavailable for reads.
  absl::Status Read(absl::string_view name, const tensor::TensorView& into) const;

  // Reads part of a tensor as it is stored; the range must lie in the tensor.
  absl::Status ReadBytes(const TensorEntry& entry, int64_t offset, std::span<std::byte> into) const;

 private:
  SafetensorsFile(base::SourceFile file, int64_t data_offset, SafetensorsHeader header);

  base::SourceFile file_;
  int64_t data_offset_;
  SafetensorsHeader header_;
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace fusionllm::checkpoint
