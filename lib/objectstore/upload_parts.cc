// ObjectStore: files that are too long for one request.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/hashed_file.h"
#include "lib/objectstore/object_store.h"

namespace fusionllm::objectstore {
namespace {

constexpr int64_t kMaxParts = 10'000;  // that a server takes
constexpr size_t kPieceBytes = 1 << 20;

Request PartRequest(const char* method, const base::ObjectUri& uri) {
  Request request;
  request.method = method;
  request.bucket = uri.bucket;
  request.key = uri.key;
  return request;
}

// Of [begin, begin + bytes) of the file; all of it goes into `whole` too.
absl::StatusOr<std::string> HashPart(const base::SourceFile& file, int64_t begin, int64_t bytes, checkpoint::Sha256& whole) {
  checkpoint::Sha256 hash;
  std::vector<std::byte> piece(kPieceBytes);
  for (int64_t at = 0; at < bytes;) {
    const auto length = static_cast<size_t>(std::min(bytes - at, static_cast<int64_t>(kPieceBytes)));
    const std::span<std::byte> into = std::span(piece).first(length);
    FUSIONLLM_RETURN_IF_ERROR(file.ReadAt(begin + at, into));
    hash.Update(into);
    whole.Update(into);
    at += static_cast<int64_t>(length);
  }
  return hash.HexDigest();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ObjectStore::UploadParts(const std::string& path, const std::string& sha256,
                                                                  const base::ObjectUri& uri, int64_t bytes, const std::string& upload) {
  FUSIONLLM_ASSIGN_OR_RETURN(const base::SourceFile file, base::SourceFile::Open(path, /*keep_open=*/true));
  const int64_t part_bytes = std::max(options_.part_bytes, (bytes + kMaxParts - 1) / kMaxParts);
  std::vector<std::string> etags;
  checkpoint::Sha256 whole;
  for (int64_t begin = 0; begin < bytes; begin += part_bytes) {
    Request request = PartRequest("PUT", uri);
    request.query = {{"partNumber", absl::StrCat(etags.size() + 1)}, {"uploadId", upload}};
    request.body_bytes = std::min(part_bytes, bytes - begin);
    FUSIONLLM_ASSIGN_OR_RETURN(request.body_sha256, HashPart(file, begin, request.body_bytes, whole));
    request.body = [&file, begin](int64_t offset, std::span<std::byte> into) { return file.ReadAt(begin + offset, into); };
    FUSIONLLM_ASSIGN_OR_RETURN(const Response response, Send(request));
    const auto etag = response.headers.find("etag");
    if (etag == response.headers.end()) return Explain(request, absl::InvalidArgumentError("a part was taken without an ETag"));
    etags.push_back(etag->second);
  }
  if (whole.HexDigest() != sha256) return absl::DataLossError(absl::StrCat(path, " has another checksum than ", sha256));
  return etags;
}

absl::Status ObjectStore::UploadInParts(const std::string& path, const std::string& sha256, const base::ObjectUri& uri, int64_t bytes) {
  Request begin = PartRequest("POST", uri);
  begin.query = {{"uploads", ""}};
  FUSIONLLM_ASSIGN_OR_RETURN(const Response begun, Send(begin));
  absl::StatusOr<std::string> upload = ParseUploadId(begun.body);
  if (!upload.ok()) return Explain(begin, upload.status());
  const absl::StatusOr<std::vector<std::string>> etags = UploadParts(path, sha256, uri, bytes, *upload);
  absl::Status status = etags.status();
  if (status.ok()) {
    const std::string parts = PrintParts(*etags);
    Request complete = PartRequest("POST", uri);
    complete.query = {{"uploadId", *upload}};
    complete.body_bytes = static_cast<int64_t>(parts.size());
    complete.body_sha256 = Sha256Hex(parts);
    complete.body = [&](int64_t offset, std::span<std::byte> into) {
      std::copy_n(std::as_bytes(std::span(parts)).begin() + offset, into.size(), into.begin());
      return absl::OkStatus();
    };
    status = Send(complete).status();
  }
  if (status.ok()) return status;
  // Parts cost until they are given up; where this fails, a rule of the bucket about incomplete uploads has to.
  Request abort = PartRequest("DELETE", uri);
  abort.query = {{"uploadId", *upload}};
  (void)Try(abort);
  return status;
}

}  // namespace fusionllm::objectstore
