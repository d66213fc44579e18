#include "lib/kube/watch/list_splitter.h"

#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/kube/watch/json_reading.h"

namespace fusionllm::kube {
namespace {

constexpr size_t kMaxHeadBytes = size_t{64} << 10;
constexpr int kMaxDepth = 512;
constexpr size_t kKeptListBytes = size_t{1} << 20;

// Bytes at which something may begin or end, outside of strings and inside.
constexpr std::array<bool, 256> kStructure = [] {
  std::array<bool, 256> stops = {};
  for (const unsigned char c : {'{', '}', '[', ']', '"'}) stops[c] = true;
  return stops;
}();
constexpr std::array<bool, 256> kStringEnd = [] {
  std::array<bool, 256> stops = {};
  for (const unsigned char c : {'"', '\\'}) stops[c] = true;
  return stops;
}();

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Whether what follows `head` is the value of the root's field "items". A quote inside of a string has a backslash before it, so the text
// cannot be the end of one.
bool AwaitsItems(absl::string_view head) { return absl::EndsWith(head, ",\"items\":") || absl::EndsWith(head, "{\"items\":"); }

}  // namespace

absl::Status ListSplitter::Append(absl::string_view text) {
  std::string& to = in_items_ ? begun_ : head_;
  const size_t limit = in_items_ ? max_object_bytes_ : kMaxHeadBytes;
  if (to.size() + text.size() > limit) {
    return absl::ResourceExhaustedError(absl::StrCat(in_items_ ? "an object" : "the head", " of a list is longer than ", limit, " bytes"));
  }
  to.append(text.data(), text.size());
  return absl::OkStatus();
}

absl::Status ListSplitter::Push(absl::string_view chunk, absl::FunctionRef<absl::Status(absl::string_view json)> object) {
  size_t from = 0;  // of what is not in head_ or begun_ yet
  const auto take = [&](size_t to) {
    const absl::string_view text = chunk.substr(from, to - from);
    from = to;
    return Append(text);
  };
  for (size_t at = 0; at < chunk.size(); ++at) {
    if (escaped_) {
      escaped_ = false;
      continue;
    }
    if (in_items_ && depth_ >= 3) {  // most of the bytes
      const auto& stops = in_string_ ? kStringEnd : kStructure;
      while (at < chunk.size() && !stops[static_cast<unsigned char>(chunk[at])]) ++at;
      if (at == chunk.size()) break;
    }
    const char c = chunk[at];
    if (in_string_) {
      escaped_ = c == '\\';
      if (c == '"') in_string_ = false;
      continue;
    }
    if (!in_items_ && IsBlank(c)) {
      if (absl::Status status = take(at); !status.ok()) return status;
      from = at + 1;
      continue;
    }
    if (in_items_ && depth_ == 2 && c != '{' && c != ']') {  // between the elements
      if (c != ',' && !IsBlank(c)) return absl::InvalidArgumentError("an element of a list's items is no object");
      from = at + 1;
      continue;
    }
    if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      if (depth_ == 1 && c == '[') {
        if (absl::Status status = take(at); !status.ok()) return status;
        if (AwaitsItems(head_)) {
          if (had_items_) return absl::InvalidArgumentError("a list with two fields items");
          in_items_ = had_items_ = true;
          head_ += "[]";
          from = at + 1;
        }
      }
      if (++depth_ > kMaxDepth) return absl::InvalidArgumentError("a list that is nested too deep");
    } else if (c == '}' || c == ']') {
      if (--depth_ < 0) return absl::InvalidArgumentError("a list with more ends than beginnings");
      if (in_items_ && depth_ <= 2 && c != (depth_ == 1 ? ']' : '}')) {
        return absl::InvalidArgumentError("a list whose brackets do not match");
      }
      if (in_items_ && depth_ == 1) {
        in_items_ = false;
        from = at + 1;
      } else if (in_items_ && depth_ == 2) {
        absl::string_view text = chunk.substr(from, at + 1 - from);
        from = at + 1;
        if (begun_.size() + text.size() > max_object_bytes_ || !begun_.empty()) {
          if (absl::Status status = Append(text); !status.ok()) return status;
          text = begun_;
        }
        const absl::Status status = object(text);
        if (begun_.capacity() > kKeptListBytes) {
          begun_ = std::string();
        } else {
          begun_.clear();
        }
        if (!status.ok()) return status;
      }
    }
  }
  return take(chunk.size());
}

absl::StatusOr<ListHead> ListSplitter::Finish() const {
  if (depth_ != 0 || in_string_ || head_.empty()) return absl::InvalidArgumentError("a list that ends before its end");
  ListHead head;
  bool null_items = false;
  const absl::Status status = ReadJson(head_, [&](simdjson::ondemand::object root) {
    for (auto field : root) {
      const std::string_view name = field.unescaped_key();
      JsonValue value = field.value();
      if (name == "kind") head.kind = TextOf(value);
      if (name == "apiVersion") head.api_version = TextOf(value);
      if (name == "items") null_items = value.is_null();
      if (name == "metadata") {
        ForEachField(value, [&](std::string_view of_metadata, JsonValue text) {
          if (of_metadata == "resourceVersion") head.resource_version = TextOf(text);
          if (of_metadata == "continue") head.continue_token = TextOf(text);
        });
      }
    }
  });
  if (!status.ok()) return status;
  if (!had_items_ && !null_items) return absl::InvalidArgumentError(absl::StrCat("a list without items; its kind is \"", head.kind, "\""));
  return head;
}

}  // namespace fusionllm::kube
