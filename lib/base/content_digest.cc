#include "lib/base/content_digest.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "lib/base/philox.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"

namespace fusionllm::base {
namespace {

constexpr int64_t kMaxReadBytes = int64_t{64} << 20;
constexpr int64_t kBlockBytes = 64 << 10;

}  // namespace

absl::StatusOr<std::string> ContentDigest(std::span<const std::string> paths) {
  std::vector<SourceFile> files;
  int64_t total = 0;
  for (const std::string& path : paths) {
    FUSIONLLM_ASSIGN_OR_RETURN(SourceFile file, SourceFile::Open(path, /*keep_open=*/false));
    total += file.size();
    files.push_back(std::move(file));
  }
  uint64_t digest = 0;
  std::string block;
  for (const SourceFile& file : files) {
    digest = StableHash(absl::StrCat(digest, " ", file.size()));
    const int64_t blocks = (file.size() + kBlockBytes - 1) / kBlockBytes;
    // The first and the last are among them.
    const int64_t share = total <= kMaxReadBytes ? blocks : std::max<int64_t>(2, kMaxReadBytes / kBlockBytes * file.size() / total);
    const int64_t read = std::min(blocks, share);
    for (int64_t i = 0; i < read; ++i) {
      const int64_t number = read < 2 ? i : i * (blocks - 1) / (read - 1);
      block.resize(static_cast<size_t>(std::min(kBlockBytes, file.size() - number * kBlockBytes)));
      FUSIONLLM_RETURN_IF_ERROR(file.ReadAt(number * kBlockBytes, std::as_writable_bytes(std::span(block))));
      digest = StableHash(absl::StrCat(digest, " ", StableHash(block)));
    }
  }
  return absl::StrFormat("%016x", digest);
}

}  // namespace fusionllm::base
