// Lists of a fake API server. Each object's text is made once for each of its states: it is no work of the server's to write ten thousand
// objects again for each list of them, where a load test has it share two cores with the client.
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/kube/testing/fake_api.h"
#include "lib/kube/testing/fake_objects.h"
#include "lib/kube/testing/selectors.h"

namespace fusionllm::kube::testing {
namespace {

std::optional<int64_t> Version(const std::string& text) {
  int64_t version = 0;
  if (!absl::SimpleAtoi(text, &version) || version < 0) return std::nullopt;
  return version;
}

// Parses "VERSION:NS/NAME".
std::optional<std::pair<int64_t, ObjectKey>> ReadContinue(const std::string& token) {
  std::string text;
  if (!absl::WebSafeBase64Unescape(token, &text)) return std::nullopt;
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  const std::optional<int64_t> version = Version(parts[0]);
  if (parts.size() != 2 || !version.has_value()) return std::nullopt;
  const std::vector<std::string> key = absl::StrSplit(parts[1], absl::MaxSplits('/', 1));
  if (key.size() != 2) return std::nullopt;
  return std::pair(*version, ObjectKey{key[0], key[1]});
}

std::string WriteContinue(int64_t version, const ObjectKey& last) {
  return absl::WebSafeBase64Escape(absl::StrCat(version, ":", last.ns, "/", last.name));
}

std::string Text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

const std::string& FakeApi::ItemText(const FakeKind& kind, const ObjectKey& key, const SharedJson& object) const {
  Item& item = items_[kind.collection()][key];
  if (item.of == object) return item.text;
  Json shown = *object;
  if (kind.options.builtin) {
    shown.erase("kind");
    shown.erase("apiVersion");
  }
  item = {object, Text(shown)};
  return item.text;
}

absl::StatusOr<FakeAnswer> FakeApi::List(const FakeKind& kind, const FakeRequest& request) const {
  int64_t at = store_.version();
  ObjectKey after;
  const std::optional<int64_t> asked = Version(request.Query("resourceVersion"));
  if (asked.value_or(0) > store_.version()) {
    return Refuse(504, "Timeout", absl::StrCat("Too large resource version: ", *asked, ", current: ", store_.version()),
                  {{"ResourceVersionTooLarge", "", "Too large resource version"}});
  }
  if (const std::string token = request.Query("continue"); !token.empty()) {
    const auto place = ReadContinue(token);
    if (!place.has_value()) return Refuse(400, "BadRequest", "continue key is not valid");
    std::tie(at, after) = *place;
  } else if (request.Query("resourceVersionMatch") == "Exact" && asked.has_value()) {
    at = *asked;
  }
  if (at < store_.compacted()) return Refuse(410, "Expired", "The provided continue parameter or resource version is too old");
  const absl::StatusOr<Selector> selector = Selector::Parse(request.Query("labelSelector"), request.Query("fieldSelector"));
  if (!selector.ok()) return Refuse(400, "BadRequest", std::string(selector.status().message()));
  // The server's cache takes no notice of a limit when it is asked for what is at hand.
  const int64_t limit = asked == 0 ? 0 : Version(request.Query("limit")).value_or(0);
  ObjectMap before;  // as it was
  const bool now = at == store_.version();
  if (!now) before = store_.At(kind.collection(), at);
  Json metadata = {{"resourceVersion", absl::StrCat(at)}};
  std::string items;
  int64_t count = 0;
  ObjectKey last;
  for (const auto& [key, object] : now ? store_.All(kind.collection()) : before) {
    if (!request.key.ns.empty() && key.ns != request.key.ns) continue;
    if (!after.name.empty() && key <= after) continue;
    if (!selector->Holds(*object)) continue;
    if (limit > 0 && count == limit) {
      metadata["continue"] = WriteContinue(at, last);
      break;
    }
    absl::StrAppend(&items, count == 0 ? "" : ",");
    if (request.metadata_only) {
      items += Text(Shown(request, *object));
    } else {
      items += ItemText(kind, key, object);
    }
    ++count;
    last = key;
  }
  const std::string list_kind = request.metadata_only ? "PartialObjectMetadataList" : kind.resource.kind + "List";
  const std::string api_version = request.metadata_only ? "meta.k8s.io/v1" : kind.resource.ApiVersion();
  return FakeAnswer{200, absl::StrCat(R"({"kind":)", Text(list_kind), R"(,"apiVersion":)", Text(api_version), R"(,"metadata":)",
                                      Text(metadata), R"(,"items":[)", items, "]}")};
}

}  // namespace fusionllm::kube::testing
