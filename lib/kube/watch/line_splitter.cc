#include "lib/kube/watch/line_splitter.h"

#include "absl/strings/str_cat.h"

namespace fusionllm::kube {
namespace {

// Beyond this a buffer is not kept for the next line.
constexpr size_t kKeptLineBytes = size_t{1} << 20;

}  // namespace

absl::Status LineSplitter::Push(absl::string_view chunk, absl::FunctionRef<absl::Status(absl::string_view line)> line) {
  while (!chunk.empty()) {
    const size_t end = chunk.find('\n');
    const absl::string_view piece = chunk.substr(0, end);
    if (begun_.size() + piece.size() > max_line_bytes_) {
      return absl::ResourceExhaustedError(absl::StrCat("a line of the stream is longer than ", max_line_bytes_, " bytes"));
    }
    if (end == absl::string_view::npos) {
      begun_.append(piece.data(), piece.size());
      return absl::OkStatus();
    }
    chunk.remove_prefix(end + 1);
    absl::string_view whole = piece;
    if (!begun_.empty()) {
      begun_.append(piece.data(), piece.size());
      whole = begun_;
    }
    if (!whole.empty() && whole.back() == '\r') whole.remove_suffix(1);
    const absl::Status status = whole.empty() ? absl::OkStatus() : line(whole);
    if (begun_.capacity() > kKeptLineBytes) {
      begun_ = std::string();
    } else {
      begun_.clear();
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::kube
