#include "lib/base/file_format.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>

#include "absl/strings/match.h"
#include "lib/base/status_macros.h"

namespace fusionllm::base {
namespace {

using Kind = FileFormat::Kind;

struct Magic {
  size_t offset;
  absl::string_view bytes;
  FileFormat format;
};

constexpr absl::string_view kUnpack = "unpack it";
constexpr absl::string_view kExport = "write out the column that is meant";
constexpr absl::string_view kFetch = "download the file itself";

constexpr FileFormat kGzip = {Kind::kCompressed, "compressed (gzip)", kUnpack};
constexpr FileFormat kZip = {Kind::kZip, "a zip archive", kUnpack};
constexpr FileFormat kPickle = {Kind::kOther, "a pickle of Python", ""};

// Of two that fit the first counts. \0 ends a literal, so that those bytes have their length.
constexpr Magic kMagics[] = {
    {0, "version https://git-lfs.github.com/spec/", {Kind::kPointer, "a pointer of Git LFS", "fetch the file itself by `git lfs pull`"}},
    {0, "/annex/objects/", {Kind::kPointer, "a pointer of git-annex", "fetch the file itself by `git annex get`"}},
    {0, {"\x1f\x8b\x08\0", 4}, kGzip},
    {0, "\x1f\x8b\x08\x08", kGzip},
    {0, "\x1f\x8b", {Kind::kCompressed, kGzip.name, kUnpack, "", /*is_certain=*/false}},
    {0, "\x28\xb5\x2f\xfd", {Kind::kCompressed, "compressed (zstd)", kUnpack}},
    {0, {"\xfd\x37zXZ\0", 6}, {Kind::kCompressed, "compressed (xz)", kUnpack}},
    {4, "1AY&SY", {Kind::kCompressed, "compressed (bzip2)", kUnpack}},
    {0, "BZh", {Kind::kCompressed, "compressed (bzip2)", kUnpack, "", /*is_certain=*/false}},
    {0, "\x04\x22\x4d\x18", {Kind::kCompressed, "compressed (lz4)", kUnpack}},
    {0, "PK\x03\x04", kZip},
    {0, "PK\x05\x06", kZip},
    {0, "7z\xbc\xaf\x27\x1c", {Kind::kCompressed, "a 7z archive", kUnpack}},
    {257, "ustar", {Kind::kCompressed, "a tar archive", kUnpack}},
    {0, "\x93NUMPY", {Kind::kOther, "a .npy file", ""}},
    {0, "\x89HDF\r\n\x1a\n", {Kind::kOther, "an HDF5 file", ""}},
    {0, "GGUF", {Kind::kOther, "a GGUF file", ""}},
    // torch.save before PyTorch 1.6, and any other of protocol 2 to 5.
    {0, {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14}, kPickle},
    {0, "\x80\x04\x95", {Kind::kOther, kPickle.name, "", "", /*is_certain=*/false}},
    {0, "\x80\x05\x95", {Kind::kOther, kPickle.name, "", "", /*is_certain=*/false}},
    {0, "PAR1", {Kind::kOther, "a Parquet file", kExport}},
    {0, {"ARROW1\0\0", 8}, {Kind::kOther, "an Arrow file", kExport}},
    {0, {"\xff\xff\xff\xff", 4}, {Kind::kOther, "a stream of Arrow, as it looks", kExport, "", /*is_certain=*/false}},
    {0, "Obj\x01", {Kind::kOther, "an Avro file", kExport}},
    {0, {"SQLite format 3\0", 16}, {Kind::kOther, "an SQLite database", kExport}},
    {0, {"MMIDIDX\0\0", 9}, {Kind::kOther, "an index of Megatron's data", "name the .bin that lies beside it"}},
    {0, "\x89PNG\r\n\x1a\n", {Kind::kOther, "a picture (PNG)", ""}},
    {0, "\xff\xd8\xff\xe0", {Kind::kOther, "a picture (JPEG)", ""}},
    {0, "\xff\xd8\xff\xe1", {Kind::kOther, "a picture (JPEG)", ""}},
    {0, "%PDF-", {Kind::kOther, "a PDF", "extract its text"}},
    {0, {"\xff\xfe\0\0", 4}, {Kind::kText, "UTF-32", "", "utf-32", /*is_certain=*/false}},  // before UTF-16, whose mark it begins with
    {0, {"\0\0\xfe\xff", 4}, {Kind::kText, "UTF-32", "", "utf-32", /*is_certain=*/false}},
    {0, "\xff\xfe", {Kind::kText, "UTF-16", "", "utf-16", /*is_certain=*/false}},
    {0, "\xfe\xff", {Kind::kText, "UTF-16", "", "utf-16", /*is_certain=*/false}},
};
constexpr FileFormat kPage = {Kind::kPage, "a web page", kFetch};
constexpr FileFormat kSafetensors = {Kind::kOther, kSafetensorsName, ""};

bool IsPage(absl::string_view front) {
  return absl::StartsWithIgnoreCase(front, "<!doctype html") || absl::StartsWithIgnoreCase(front, "<html");
}

// The length of its header in 64 bits, and a JSON object whose first key stands there at once.
bool IsSafetensors(absl::string_view front) {
  constexpr size_t kPrefixBytes = 8;
  const absl::string_view upper_half("\0\0\0\0", 4);
  return front.size() > kPrefixBytes && front.substr(4, 4) == upper_half && absl::StartsWith(front.substr(kPrefixBytes), "{\"");
}

}  // namespace

const FileFormat* FormatOf(absl::string_view front, int64_t file_bytes) {
  if (IsPage(front)) return &kPage;
  if (IsSafetensors(front)) return &kSafetensors;
  const auto* const found = std::find_if(std::begin(kMagics), std::end(kMagics), [&](const Magic& magic) {
    if (magic.format.kind == Kind::kPointer && file_bytes > kMaxPointerBytes) return false;
    return front.size() > magic.offset && absl::StartsWith(front.substr(magic.offset), magic.bytes);
  });
  return found == std::end(kMagics) ? nullptr : &found->format;
}

absl::StatusOr<const FileFormat*> FormatOf(const SourceFile& file) {
  std::string front(std::min(kFormatPrefixBytes, static_cast<size_t>(file.size())), '\0');
  FUSIONLLM_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(front))));
  return FormatOf(front, file.size());
}

}  // namespace fusionllm::base
