#include "lib/objectstore/s3_xml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace fusionllm::objectstore {
namespace {

TEST(AnswersTest, ReadsAListingAsServersWriteIt) {
  const auto listing = ParseListing(R"(<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>models</Name><EncodingType>url</EncodingType>
<IsTruncated>true</IsTruncated><NextContinuationToken>1/a+b==</NextContinuationToken>
<Contents><Key>runs/a+b%2Bc%C3%A9</Key><LastModified>2026-11-23T05:00:00.000Z</LastModified><ETag>&quot;abc&quot;</ETag><Size>7</Size></Contents>
<CommonPrefixes><Prefix>x/</Prefix></CommonPrefixes></ListBucketResult>)");
  ASSERT_TRUE(listing.ok()) << listing.status();
  ASSERT_EQ(listing->objects.size(), 1u);
  EXPECT_EQ(listing->objects[0].key, "runs/a b+c\xc3\xa9");
  EXPECT_EQ(listing->objects[0].bytes, 7);
  EXPECT_EQ(listing->objects[0].etag, "\"abc\"");
  EXPECT_EQ(listing->next, "1/a+b==");
}

TEST(AnswersTest, KeysStayAsTheyAreWhereTheServerDoesNotEscape) {
  const auto listing = ParseListing("<ListBucketResult><Contents><Key>a%2Bb &amp; c</Key><Size>0</Size></Contents></ListBucketResult>");
  ASSERT_TRUE(listing.ok()) << listing.status();
  EXPECT_EQ(listing->objects[0].key, "a%2Bb & c");
}

TEST(AnswersTest, RefusesListingsThatCannotBeTrusted) {
  const auto with = [](const char* contents) {
    return absl::StrCat("<ListBucketResult><EncodingType>url</EncodingType>", contents, "</ListBucketResult>");
  };
  for (const std::string& xml :
       {std::string(""), std::string("{}"), std::string("<Error><Code>x</Code></Error>"), std::string("<ListBucketResult>"),
        with("<Contents><Size>1</Size></Contents>"), with("<Contents><Key>a</Key></Contents>"),
        with("<Contents><Key>a</Key><Size>-1</Size></Contents>"), with("<Contents><Key>a%2</Key><Size>1</Size></Contents>"),
        with("<Contents><Key>a%zz</Key><Size>1</Size></Contents>"),
        with("<Contents><Key>a</Key><Size>99999999999999999999</Size></Contents>"), with("<IsTruncated>true</IsTruncated>")}) {
    EXPECT_EQ(ParseListing(xml).status().code(), absl::StatusCode::kInvalidArgument) << xml;
  }
}

TEST(AnswersTest, ErrorsAreALineOfText) {
  const ServerError error = ParseError("<Error><Code>AccessDenied</Code><Message>Access\nDenied\x1b[31m.</Message></Error>");
  EXPECT_EQ(error.code, "AccessDenied");
  EXPECT_EQ(ParseError("<html>no</html>").code, "");
  EXPECT_EQ(ParseError(absl::StrCat("<Error><Code>A</Code><Message>", std::string(5000, 'x'), "</Message></Error>")).message.size(), 400u);
}

TEST(AnswersTest, PartsArePrintedAsTheServerReadsThem) {
  EXPECT_EQ(PrintParts({"\"a\"", "<&>"}),
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"a\"</ETag></Part><Part><PartNumber>2</PartNumber>"
            "<ETag>&lt;&amp;&gt;</ETag></Part></CompleteMultipartUpload>");
  EXPECT_EQ(ParseUploadId("<InitiateMultipartUploadResult><UploadId>u 1</UploadId></InitiateMultipartUploadResult>").value(), "u 1");
  EXPECT_FALSE(ParseUploadId("<InitiateMultipartUploadResult/>").ok());
}

}  // namespace
}  // namespace fusionllm::objectstore
