#include "lib/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/strings/str_cat.h"
#include "lib/base/file_format.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/tensor_fill.h"

namespace fusionllm::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are written as they lie in memory");

constexpr int64_t kPieceBytes = 128 << 10;

absl::Status InFile(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

// Headers as other writers pad them have white space in front of the brace: what only may be of another format is not held against those.
absl::Status CheckNotOfAnotherFormat(const base::SourceFile& file) {
  using Kind = base::FileFormat::Kind;
  FUSIONLLM_ASSIGN_OR_RETURN(const base::FileFormat* const format, base::FormatOf(file));
  if (format == nullptr || format->name == base::kSafetensorsName || !format->is_certain) return absl::OkStatus();
  const auto sentence = [&](absl::string_view more, absl::string_view remedy) {
    return absl::StrCat(file.path(), " is ", format->name, more, " and no safetensors file: ", remedy);
  };
  switch (format->kind) {
    case Kind::kPointer:
    case Kind::kPage:
    case Kind::kCompressed:
      return absl::InvalidArgumentError(sentence("", format->remedy));
    case Kind::kZip:
      return absl::UnimplementedError(sentence(", such as torch.save writes,",
                                               "load it in PyTorch and write it by save_pretrained() or safetensors.torch.save_file()"));
    default:
      return absl::UnimplementedError(
          sentence("", "load it by the library that wrote it and write its tensors by safetensors' save_file()"));
  }
}

}  // namespace

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path, std::vector<TensorSpec> specs,
                                                            const std::map<std::string, std::string>& metadata) {
  absl::StatusOr<std::string> header = FormatSafetensorsHeader(specs, metadata);
  if (!header.ok()) return InFile(path, header.status());
  FUSIONLLM_ASSIGN_OR_RETURN(HashedFile file, HashedFile::Create(path));
  FUSIONLLM_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(*header))));
  return SafetensorsWriter(std::move(file), std::move(specs));
}

absl::StatusOr<WrittenFile> SafetensorsWriter::Finish() {
  int64_t wanted = 0;
  for (const TensorSpec& spec : specs_) wanted += spec.bytes();
  if (appended_ != wanted) {
    const std::string path = file_.path();
    { const HashedFile dropped = std::move(file_); }  // its destructor removes the file
    return absl::FailedPreconditionError(absl::StrCat(path, " was given ", appended_, " bytes of tensors instead of ", wanted));
  }
  return file_.Finish();
}

absl::StatusOr<WrittenFile> WriteSafetensors(const std::string& path, std::span<const NamedTensor> tensors,
                                             const std::map<std::string, std::string>& metadata) {
  const absl::StatusOr<SafetensorsImage> image = SafetensorsImage::Create(tensors, metadata);
  if (!image.ok()) return InFile(path, image.status());
  return WriteImage(path, *image);
}

absl::StatusOr<WrittenFile> WriteImage(const std::string& path, const SafetensorsImage& image) {
  FUSIONLLM_ASSIGN_OR_RETURN(HashedFile file, HashedFile::Create(path));
  FUSIONLLM_RETURN_IF_ERROR(image.ForEachPiece(std::numeric_limits<size_t>::max(), [&](auto piece) { return file.Write(piece); }));
  return file.Finish();
}

SafetensorsFile::SafetensorsFile(base::SourceFile file, int64_t data_offset, SafetensorsHeader header)
    : file_(std::move(file)), data_offset_(data_offset), header_(std::move(header)) {
  for (size_t i = 0; i < header_.tensors.size(); ++i) index_[header_.tensors[i].name] = i;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  FUSIONLLM_ASSIGN_OR_RETURN(base::SourceFile file, base::SourceFile::Open(path, /*keep_open=*/true));
  std::array<uint8_t, 8> prefix = {};
  if (file.size() < 8) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has ", file.size(), " bytes, too few for a safetensors file: is it cut off?"));
  }
  FUSIONLLM_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(prefix))));
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= uint64_t{prefix[i]} << (8 * i);
  FUSIONLLM_RETURN_IF_ERROR(CheckNotOfAnotherFormat(file));
  if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " claims a header of ", length, " bytes: it is no safetensors file"));
  }
  if (static_cast<int64_t>(length) > file.size() - 8) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " claims a header of ", length, " bytes but has only ", file.size(), ": is it cut off?"));
  }
  std::string json(length, '\0');
  FUSIONLLM_RETURN_IF_ERROR(file.ReadAt(8, std::as_writable_bytes(std::span(json))));
  const int64_t data_offset = 8 + static_cast<int64_t>(length);
  absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(json, file.size() - data_offset);
  if (!header.ok()) return InFile(path, header.status());
  return SafetensorsFile(std::move(file), data_offset, *std::move(header));
}

const TensorEntry* SafetensorsFile::Find(absl::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &header_.tensors[found->second];
}

absl::Status SafetensorsFile::ReadBytes(const TensorEntry& entry, int64_t offset, std::span<std::byte> into) const {
  return file_.ReadAt(data_offset_ + entry.begin + offset, into);
}

absl::Status SafetensorsFile::Read(absl::string_view name, const tensor::TensorView& into) const {
  const TensorEntry* entry = Find(name);
  if (entry == nullptr) return absl::NotFoundError(absl::StrCat(path(), " has no tensor '", name, "'"));
  FUSIONLLM_ASSIGN_OR_RETURN(TensorFill fill, TensorFill::Create(path(), *entry, into));
  if (!fill.widens()) return ReadBytes(*entry, 0, into.bytes());
  std::vector<std::byte> piece(kPieceBytes);
  for (int64_t at = 0; at < entry->bytes();) {
    const std::span part(piece.data(), static_cast<size_t>(std::min(entry->bytes() - at, kPieceBytes)));
    FUSIONLLM_RETURN_IF_ERROR(ReadBytes(*entry, at, part));
    FUSIONLLM_RETURN_IF_ERROR(fill.Append(part));
    at += static_cast<int64_t>(part.size());
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::checkpoint
