#include "lib/kube/api/resource.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::kube {

std::string Resource::ApiVersion() const { return group.empty() ? version : absl::StrCat(group, "/", version); }

std::string Resource::Name() const { return group.empty() ? plural : absl::StrCat(plural, ".", group); }

std::string ObjectKey::ToString() const { return ns.empty() ? name : absl::StrCat(ns, "/", name); }

std::string PercentEncode(absl::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '.' || c == '_' || c == '~') {
      encoded.push_back(c);
    } else {
      encoded.push_back('%');
      encoded.push_back(kDigits[byte >> 4]);
      encoded.push_back(kDigits[byte & 15]);
    }
  }
  return encoded;
}

std::string QueryString(const std::vector<std::pair<std::string, std::string>>& parameters) {
  std::string query;
  for (const auto& [name, value] : parameters) {
    if (!value.empty()) absl::StrAppend(&query, query.empty() ? "" : "&", PercentEncode(name), "=", PercentEncode(value));
  }
  return query;
}

std::string CollectionPath(const Resource& resource, absl::string_view ns) {
  std::string path = resource.group.empty() ? "/api" : absl::StrCat("/apis/", PercentEncode(resource.group));
  absl::StrAppend(&path, "/", PercentEncode(resource.version));
  if (resource.namespaced && !ns.empty()) absl::StrAppend(&path, "/namespaces/", PercentEncode(ns));
  absl::StrAppend(&path, "/", PercentEncode(resource.plural));
  return path;
}

std::string ObjectPath(const Resource& resource, const ObjectKey& key, absl::string_view subresource) {
  std::string path = absl::StrCat(CollectionPath(resource, key.ns), "/", PercentEncode(key.name));
  if (!subresource.empty()) absl::StrAppend(&path, "/", PercentEncode(subresource));
  return path;
}

}  // namespace fusionllm::kube
