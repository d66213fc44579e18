// What an object store may answer.
#include "lib/base/testing/fuzz.h"
#include "lib/objectstore/s3_xml.h"

namespace fusionllm::objectstore {
namespace {

std::vector<std::string> Seeds() {
  return {
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>models</Name>"
      "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
      "<Contents><Key>a%2Fb+c</Key><LastModified>2026-11-23T05:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag><Size>12</Size></"
      "Contents>"
      "<Contents><Key>d</Key><Size>0</Size></Contents></ListBucketResult>",
      "<ListBucketResult><Contents><Key>d &amp; e</Key><Size>1125899906842624</Size></Contents></ListBucketResult>",
      "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>",
      "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"};
}

std::vector<std::string> Words() {
  return {"<Contents>", "</Contents>", "<Key>", "%", "%00", "&#0;", "<!DOCTYPE a [<!ENTITY b \"c\">]>", "&b;", "<![CDATA[", "-1", "true"};
}

bool Accepts(absl::string_view input) {
  const ServerError error = ParseError(input);
  FUZZ_CHECK(error.code.size() <= 400 && error.message.size() <= 400);
  const absl::StatusOr<std::string> upload = ParseUploadId(input);
  FUZZ_CHECK(!upload.ok() || !upload->empty());
  const absl::StatusOr<Listing> listing = ParseListing(input);
  if (!listing.ok()) return !error.code.empty() || upload.ok();
  std::vector<std::string> etags;
  for (const ObjectInfo& object : listing->objects) {
    FUZZ_CHECK(!object.key.empty() && object.bytes >= 0);
    etags.push_back(object.etag);
  }
  FUZZ_CHECK(!PrintParts(etags).empty());
  return true;
}

}  // namespace
}  // namespace fusionllm::objectstore

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {objectstore::Seeds, objectstore::Words, objectstore::Accepts}; }
