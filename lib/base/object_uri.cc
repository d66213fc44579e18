#include "lib/base/object_uri.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace fusionllm::base {
namespace {

constexpr absl::string_view kScheme = "s3://", kSlashes = "://";
constexpr size_t kMaxKeyBytes = 1024;  // what S3 takes
constexpr size_t kMinBucketBytes = 3, kMaxBucketBytes = 63;

// Amazon's rules for general purpose buckets, which other stores share.
bool IsBucket(absl::string_view bucket) {
  const auto alnum = [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c); };
  return bucket.size() >= kMinBucketBytes && bucket.size() <= kMaxBucketBytes && alnum(bucket.front()) && alnum(bucket.back()) &&
         std::all_of(bucket.begin(), bucket.end(), [&](char c) { return alnum(c) || c == '-' || c == '.'; }) &&
         !absl::StrContains(bucket, "..");
}

}  // namespace

bool IsUri(absl::string_view path) {
  const size_t scheme = path.find(kSlashes);
  return scheme != absl::string_view::npos && scheme > 0 &&
         std::all_of(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(scheme), [](char c) { return absl::ascii_isalnum(c); });
}

bool IsRelativePath(absl::string_view key) {
  if (key.empty() || key.size() > kMaxKeyBytes) return false;
  if (std::any_of(key.begin(), key.end(), [](char c) { return absl::ascii_iscntrl(c); })) return false;
  for (const absl::string_view part : absl::StrSplit(key, '/')) {
    if (part.empty() || part == "." || part == "..") return false;
  }
  return true;
}

absl::StatusOr<ObjectUri> ParseObjectUri(absl::string_view text) {
  const auto wrong = [&](absl::string_view why) { return absl::InvalidArgumentError(absl::StrCat("'", text, "' ", why)); };
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, kScheme)) return wrong("is no URI of an object store that is known: those begin with s3://");
  const absl::string_view bucket = rest.substr(0, rest.find('/'));
  if (!IsBucket(bucket)) {
    return wrong("names no bucket: that has 3 to 63 lower-case letters, digits, '-' and '.', with a letter or digit at both ends");
  }
  absl::string_view key = rest.substr(bucket.size());
  absl::ConsumePrefix(&key, "/");
  const bool folder = absl::ConsumeSuffix(&key, "/");
  if (!key.empty() && !IsRelativePath(key)) {
    return wrong("names no object: between the slashes of its key, of 1024 bytes at most, there is something, and neither . nor ..");
  }
  return ObjectUri{.bucket = std::string(bucket), .key = std::string(key), .folder = folder};
}

std::string ToString(const ObjectUri& uri) { return absl::StrCat(kScheme, uri.bucket, uri.key.empty() ? "" : "/", uri.key); }

ObjectUri JoinUri(const ObjectUri& uri, absl::string_view name) {
  return {.bucket = uri.bucket, .key = uri.key.empty() ? std::string(name) : absl::StrCat(uri.key, "/", name)};
}

}  // namespace fusionllm::base
