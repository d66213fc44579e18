#include "lib/objectstore/s3_xml.h"

#include <algorithm>
#include <pugixml.hpp>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/base/status_macros.h"

namespace fusionllm::objectstore {
namespace {

constexpr size_t kMaxErrorText = 400;
constexpr int64_t kMaxObjectBytes = int64_t{1} << 50;

bool Load(absl::string_view xml, pugi::xml_document& document) {
  return document.load_buffer(xml.data(), xml.size(), pugi::parse_default, pugi::encoding_utf8).status == pugi::status_ok;
}

// Escapes are those of a URL's query, where '+' is a space (encoding-type=url). False: an escape that is none.
bool Unescape(absl::string_view text, std::string& out) {
  out.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i] == '+' ? ' ' : text[i]);
      continue;
    }
    if (i + 2 >= text.size() || !absl::ascii_isxdigit(text[i + 1]) || !absl::ascii_isxdigit(text[i + 2])) return false;
    out += absl::HexStringToBytes(text.substr(i + 1, 2));
    i += 2;
  }
  return true;
}

absl::StatusOr<ObjectInfo> ObjectOf(const pugi::xml_node& contents, bool escaped) {
  ObjectInfo object;
  const absl::string_view key = contents.child_value("Key");
  if (!escaped) object.key = std::string(key);
  if (escaped && !Unescape(key, object.key)) return absl::InvalidArgumentError("a listing with a key whose escapes are broken");
  if (object.key.empty()) return absl::InvalidArgumentError("a listing with an object that has no key");
  if (!absl::SimpleAtoi(contents.child_value("Size"), &object.bytes) || object.bytes < 0 || object.bytes > kMaxObjectBytes) {
    return absl::InvalidArgumentError("a listing with an object that has no size");
  }
  object.etag = contents.child_value("ETag");
  object.last_modified = contents.child_value("LastModified");
  return object;
}

// For a line of a log.
std::string Printable(absl::string_view text) {
  std::string line;
  for (const char c : text) {
    if (line.size() == kMaxErrorText) break;
    if (!absl::ascii_iscntrl(c)) line.push_back(c);
  }
  return line;
}

}  // namespace

absl::StatusOr<Listing> ParseListing(absl::string_view xml) {
  pugi::xml_document document;
  if (!Load(xml, document)) return absl::InvalidArgumentError("a listing that is no XML");
  const pugi::xml_node root = document.child("ListBucketResult");
  if (!root) return absl::InvalidArgumentError("a listing without ListBucketResult");
  const bool escaped = absl::string_view(root.child_value("EncodingType")) == "url";
  Listing listing;
  for (const pugi::xml_node& contents : root.children("Contents")) {
    FUSIONLLM_ASSIGN_OR_RETURN(ObjectInfo object, ObjectOf(contents, escaped));
    listing.objects.push_back(std::move(object));
  }
  if (absl::string_view(root.child_value("IsTruncated")) == "true") {
    listing.next = root.child_value("NextContinuationToken");
    if (listing.next.empty()) return absl::InvalidArgumentError("a listing that goes on and does not say how");
  }
  return listing;
}

ServerError ParseError(absl::string_view xml) {
  pugi::xml_document document;
  if (!Load(xml, document)) return {};
  const pugi::xml_node root = document.child("Error");
  return {.code = Printable(root.child_value("Code")), .message = Printable(root.child_value("Message"))};
}

absl::StatusOr<std::string> ParseUploadId(absl::string_view xml) {
  pugi::xml_document document;
  std::string id;
  if (Load(xml, document)) id = document.child("InitiateMultipartUploadResult").child_value("UploadId");
  if (id.empty()) return absl::InvalidArgumentError("the begin of an upload was answered without an UploadId");
  return id;
}

std::string PrintParts(const std::vector<std::string>& etags) {
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("CompleteMultipartUpload");
  for (size_t i = 0; i < etags.size(); ++i) {
    pugi::xml_node part = root.append_child("Part");
    part.append_child("PartNumber").text().set(static_cast<unsigned long long>(i + 1));
    part.append_child("ETag").text().set(etags[i].c_str());
  }
  std::ostringstream out;
  document.save(out, "", pugi::format_raw | pugi::format_no_declaration);
  return out.str();
}

}  // namespace fusionllm::objectstore
