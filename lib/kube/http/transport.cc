#include "lib/kube/http/transport.h"

#include "absl/strings/match.h"

namespace fusionllm::kube {

absl::string_view HttpResponse::Header(absl::string_view name) const {
  for (const HttpHeader& header : headers) {
    if (absl::EqualsIgnoreCase(header.name, name)) return header.value;
  }
  return {};
}

}  // namespace fusionllm::kube
