#include "lib/checkpoint/safetensors.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/convert.h"
#include "lib/checkpoint/testing/sample.h"

namespace fusionllm::checkpoint {
namespace {

using tensor::DType;
using tensor::Tensor;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file with this header and data.
std::string File(absl::string_view json, absl::string_view data) {
  std::string bytes(8, '\0');
  const uint64_t length = json.size();
  std::memcpy(bytes.data(), &length, 8);
  return absl::StrCat(bytes, json, data);
}

TEST(SafetensorsTest, ReadsBackWhatWasWrittenInEveryDtype) {
  const base::TempFolder folder;
  std::vector<std::unique_ptr<Tensor>> owned;
  std::vector<NamedTensor> tensors;
  for (const DType dtype : {DType::kU8, DType::kF16, DType::kF32, DType::kI64, DType::kBF16, DType::kI32}) {
    owned.push_back(std::make_unique<Tensor>(tensor::TensorType{dtype, {3, 5}}));
    for (size_t i = 0; i < owned.back()->bytes().size(); ++i) owned.back()->bytes()[i] = static_cast<std::byte>(i * 7 + owned.size());
    tensors.push_back({std::string(Name(dtype)), owned.back()->view()});
  }
  Tensor scalar({DType::kF32, {}}), empty({DType::kF32, {0, 7}});
  *scalar.f32() = 2.5f;
  tensors.push_back({"a scalar \"quoted\"", scalar.view()});
  tensors.push_back({"empty", empty.view()});
  const auto written = WriteSafetensors(folder / "f", tensors, {{"format", "pt"}, {"note", "x"}});
  ASSERT_TRUE(written.ok()) << written.status();
  const auto file = SafetensorsFile::Open(folder / "f");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->size(), written->bytes);
  EXPECT_EQ(file->metadata().at("note"), "x");
  ASSERT_EQ(file->tensors().size(), tensors.size());
  for (const NamedTensor& tensor : tensors) {
    Tensor back(tensor.view.type);
    const absl::Status status = file->Read(tensor.name, back.view());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(std::memcmp(back.bytes().data(), tensor.view.data, back.bytes().size()), 0) << tensor.name;
    EXPECT_EQ(file->Find(tensor.name)->begin % static_cast<int64_t>(SizeOf(tensor.view.type.dtype)), 0) << "aligned for mapping";
  }
}

TEST(SafetensorsTest, ReadsAFileOfTheFormatsDescription) {
  const base::TempFolder folder;
  const std::string path = folder.Write("f", File(R"({"b":{"dtype":"F64","shape":[1],"data_offsets":[4,12]},
      "a":{"data_offsets":[0,4],"dtype":"I32","shape":[1]},"__metadata__":{"k":"v"}}   )",
                                                  std::string("\x01\x02\0\0\0\0\0\0\0\0\0\0", 12)));
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  Tensor a({DType::kI32, {1}});
  ASSERT_TRUE(file->Read("a", a.view()).ok());
  EXPECT_EQ(*a.as<int32_t>(), 0x201);
  EXPECT_EQ(file->Find("b")->dtype_name, "F64");
  EXPECT_THAT(file->Read("b", a.view()).message(), HasSubstr("F64[1]")) << "listed, but not readable";
}

TEST(SafetensorsTest, AnyWhiteSpaceMayStandBehindTheHeader) {
  const base::TempFolder folder;
  for (const char* padding : {"", " ", "\t", "\n", "\r\n", " \t\n  "}) {
    const std::string path = folder.Write(
        "f", File(absl::StrCat(R"({"a":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})", padding), std::string("\x07\0\0\0", 4)));
    const auto file = SafetensorsFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    Tensor a({DType::kI32, {1}});
    ASSERT_TRUE(file->Read("a", a.view()).ok());
    EXPECT_EQ(*a.as<int32_t>(), 7);
  }
}

TEST(SafetensorsTest, EmptyMetadataAndATensorOfManyDimensionsAreLegal) {
  const base::TempFolder folder;
  const std::string path =
      folder.Write("f", File(R"({"__metadata__":{},"deep":{"dtype":"I32","shape":[1,1,1,2,1,1,1,1,1,1],"data_offsets":[0,8]},)"
                             R"("a":{"dtype":"I32","shape":[1],"data_offsets":[8,12]}})",
                             std::string("\x01\0\0\0\x02\0\0\0\x07\0\0\0", 12)));
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->metadata().empty());
  ASSERT_NE(file->Find("deep"), nullptr);
  EXPECT_EQ(file->Find("deep")->bytes(), 8);
  Tensor a({DType::kI32, {1}});
  ASSERT_TRUE(file->Read("a", a.view()).ok()) << "beside it";
  EXPECT_EQ(*a.as<int32_t>(), 7);
}

TEST(SafetensorsTest, FileOfTorchSaveIsRefusedAsSuch) {
  const base::TempFolder folder;
  for (const std::string& flags : {std::string("\x14\0\x08\x08", 4), std::string(4, '\0')}) {
    const std::string path = folder.Write("pytorch_model.bin", std::string("PK\x03\x04") + flags + std::string(100, 'x'));
    EXPECT_THAT(std::string(SafetensorsFile::Open(path).status().message()), HasSubstr("is a zip archive, such as torch.save writes"));
  }
}

TEST(SafetensorsTest, WidensHalfFloatsToF32) {
  const base::TempFolder folder;
  Tensor half({DType::kF16, {4}}), brain({DType::kBF16, {2}});
  const uint16_t halves[] = {0x3c00, 0xc100, 0x0001, 0x7c00}, brains[] = {0x3fc0, 0xc2c8};
  std::memcpy(half.as<uint16_t>(), halves, sizeof(halves));
  std::memcpy(brain.as<uint16_t>(), brains, sizeof(brains));
  const std::vector<NamedTensor> tensors = {{"half", half.view()}, {"brain", brain.view()}};
  ASSERT_TRUE(WriteSafetensors(folder / "f", tensors).ok());
  const auto file = SafetensorsFile::Open(folder / "f");
  ASSERT_TRUE(file.ok()) << file.status();
  Tensor wide({DType::kF32, {4}}), two({DType::kF32, {2}});
  ASSERT_TRUE(file->Read("half", wide.view()).ok());
  EXPECT_THAT(std::vector<float>(wide.f32(), wide.f32() + 4), ElementsAre(1, -2.5, 0x1p-24f, std::numeric_limits<float>::infinity()));
  ASSERT_TRUE(file->Read("brain", two.view()).ok());
  EXPECT_THAT(std::vector<float>(two.f32(), two.f32() + 2), ElementsAre(1.5, -100));
}

// IEEE 754 binary16 by its definition.
float HalfByDefinition(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) {
    return sign * (fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN());
  }
  return sign *
         (exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24) : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25));
}

TEST(SafetensorsTest, WidensEveryHalfFloatExactly) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto narrow = static_cast<uint16_t>(bits);
    const float wanted = HalfByDefinition(narrow);
    const float got = FloatFromF16(narrow);
    EXPECT_TRUE(std::isnan(wanted) ? std::isnan(got) : got == wanted && std::signbit(got) == std::signbit(wanted)) << bits;
  }
}

TEST(SafetensorsTest, SaysWhatDiffersFromWhatIsWanted) {
  const base::TempFolder folder;
  SampleTensors sample;
  ASSERT_TRUE(WriteSafetensors(folder / "f", sample.Make({"w"}, 0)).ok());
  const auto file = SafetensorsFile::Open(folder / "f");
  ASSERT_TRUE(file.ok()) << file.status();
  Tensor turned({DType::kF32, {3, 2}}), narrow({DType::kF16, {2, 3}});
  EXPECT_THAT(file->Read("w", turned.view()).message(), AllOf(HasSubstr("'w'"), HasSubstr("F32[2, 3]"), HasSubstr("f32[3, 2]")));
  EXPECT_FALSE(file->Read("w", narrow.view()).ok()) << "narrowing would lose bits";
  EXPECT_EQ(file->Read("v", turned.view()).code(), absl::StatusCode::kNotFound);
}

TEST(SafetensorsTest, RefusesTensorsThatCannotBeWritten) {
  const base::TempFolder folder;
  SampleTensors sample;
  const auto error = [&](std::vector<std::string> names) {
    return std::string(WriteSafetensors(folder / "f", sample.Make(names, 0)).status().message());
  };
  EXPECT_THAT(error({"a", "a"}), HasSubstr("two tensors are named 'a'"));
  EXPECT_THAT(error({""}), HasSubstr("cannot be the name"));
  EXPECT_THAT(error({"__metadata__"}), HasSubstr("cannot be the name"));
  EXPECT_THAT(error({"\xff"}), HasSubstr("not valid UTF-8"));
  EXPECT_FALSE(std::filesystem::exists(folder / "f"));
  auto writer = SafetensorsWriter::Create(folder / "g", {{"x", {DType::kF32, {2}}}}, {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_THAT(writer->Finish().status().message(), HasSubstr("0 bytes of tensors instead of 8"));
  EXPECT_FALSE(std::filesystem::exists(folder / "g"));
}

struct Broken {
  const char* what;
  std::string json;
  size_t data_bytes;
  const char* message;
};

TEST(SafetensorsTest, RefusesEveryBrokenRuleOfTheFormat) {
  const auto one = [](absl::string_view fields) { return absl::StrCat(R"({"t":{)", fields, "}}"); };
  const std::vector<Broken> cases = {
      {"an overlap", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6,
       "overlaps"},
      {"a gap", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})", 6,
       "leaves a gap"},
      {"unused data", one(R"("dtype":"U8","shape":[4],"data_offsets":[0,4])"), 5, "5 bytes of data"},
      {"missing data", one(R"("dtype":"U8","shape":[4],"data_offsets":[0,4])"), 3, "cut off"},
      {"reversed offsets", one(R"("dtype":"U8","shape":[0],"data_offsets":[4,0])"), 4, "lies at bytes 4 to 0"},
      {"a wrong size", one(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4, "takes 8"},
      {"an overflow", one(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])"), 0, "absurd shape"},
      {"an overflow behind a zero", one(R"("dtype":"U8","shape":[0,9223372036854775807,9223372036854775807],"data_offsets":[0,0])"), 0,
       "absurd"},
      {"a huge extent", one(R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,4])"), 4, "out of range"},
      {"an extent too long for any number", one(R"("dtype":"U8","shape":[99999999999999999999999],"data_offsets":[0,4])"), 4,
       "out of range"},
      {"a negative extent", one(R"("dtype":"U8","shape":[-4],"data_offsets":[0,4])"), 4, "negative"},
      {"half of a byte", one(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])"), 1, "takes 1 and a part of one"},
      {"a wrong size of a type that cannot be held", one(R"("dtype":"F8_E8M0","shape":[4],"data_offsets":[0,2])"), 2, "takes 4"},
      {"one offset", one(R"("dtype":"U8","shape":[4],"data_offsets":[4])"), 4, "not two numbers"},
      {"no shape", one(R"("dtype":"U8","data_offsets":[0,4])"), 4, "without"},
      {"no JSON in an unknown field", one(R"("dtype":"U8","shape":[4],"data_offsets":[0,4],"x":[1)"), 4, "no JSON at byte"},
      {"a field twice", one(R"("dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4])"), 4, "twice"},
      {"a name twice", R"({"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0,
       "twice"},
      {"an empty name", R"({"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0, "name of 0 bytes"},
      {"nested shapes", one(R"("dtype":"U8","shape":[[4]],"data_offsets":[0,4])"), 4, "an array where"},
      {"a tensor that is a number", R"({"t":4})", 0, "a number where"},
      {"metadata of numbers", R"({"__metadata__":{"k":1}})", 0, "a number where"},
      {"a list", "[]", 0, "no JSON object"},
      {"no JSON", R"({"t":)", 0, "no JSON at byte"},
      {"text behind the object", R"({} x)", 0, "no JSON at byte"},
      {"deep nesting", "{\"t\":" + std::string(100'000, '['), 0, "an array where"},
      {"text that is no UTF-8", "{\"\xff\":{}}", 0, "no JSON at byte"},
  };
  const base::TempFolder folder;
  for (const Broken& broken : cases) {
    const std::string path = folder.Write("f", File(broken.json, std::string(broken.data_bytes, 'x')));
    const absl::Status status = SafetensorsFile::Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << broken.what << ": " << status;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(path), HasSubstr(broken.message))) << broken.what;
  }
}

TEST(SafetensorsTest, WhatIsBeyondALimitIsNotSupportedRatherThanBroken) {
  const base::TempFolder folder;
  std::string ones = "1";
  for (size_t i = 0; i < kMaxRank; ++i) ones += ",1";
  const std::string long_name(kMaxTensorNameBytes + 1, 'n');
  for (const std::string& json : {absl::StrCat(R"({"t":{"dtype":"U8","shape":[)", ones, R"(],"data_offsets":[0,1]}})"),
                                  absl::StrCat(R"({")", long_name, R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})")}) {
    const absl::Status status = SafetensorsFile::Open(folder.Write("f", File(json, "x"))).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("not supported"));
  }
}

TEST(SafetensorsTest, TypesAndFieldsOfLaterVersionsStopOnlyWhoAsksForTheTensor) {
  const base::TempFolder folder;
  const std::string json = R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"codec":{"name":["none",1,-1,1.5,true,null]}},
      "scale":{"dtype":"F8_E8M0","shape":[4],"data_offsets":[2,6]},"four":{"dtype":"F4","shape":[4],"data_offsets":[6,8]},
      "complex":{"dtype":"C64","shape":[1],"data_offsets":[8,16]},"future":{"dtype":"Q7","shape":[5],"data_offsets":[16,19],"x":1},
      "__metadata__":null})";
  const auto file = SafetensorsFile::Open(folder.Write("f", File(json, "ab" + std::string(17, 'x'))));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors().size(), 5);
  Tensor w({DType::kU8, {2}}), wanted({DType::kF32, {4}}), five({DType::kF32, {5}});
  ASSERT_TRUE(file->Read("w", w.view()).ok());
  EXPECT_EQ(std::string(w.as<char>(), 2), "ab");
  EXPECT_THAT(file->Read("scale", wanted.view()).message(), AllOf(HasSubstr("'scale'"), HasSubstr("F8_E8M0[4]")));
  EXPECT_THAT(file->Read("future", five.view()).message(), AllOf(HasSubstr("'future'"), HasSubstr("Q7[5]"), HasSubstr("f32[5]")));
}

TEST(SafetensorsTest, WhiteSpaceMayStandInFrontOfTheHeader) {
  const base::TempFolder folder;
  const std::string object = R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  for (const char* front : {"\n", " \t\r\n"}) EXPECT_TRUE(SafetensorsFile::Open(folder.Write("f", File(front + object, "x"))).ok());
  EXPECT_FALSE(SafetensorsFile::Open(folder.Write("f", File("\f" + object, "x"))).ok());
  EXPECT_FALSE(SafetensorsFile::Open(folder.Write("f", File("   ", "x"))).ok());
}

TEST(SafetensorsTest, WhatIsDownloadedInPlaceOfAFileIsNamed) {
  const base::TempFolder folder;
  const auto error = [&](std::string bytes) { return std::string(SafetensorsFile::Open(folder.Write("f", bytes)).status().message()); };
  EXPECT_THAT(error("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"), HasSubstr("git lfs pull"));
  for (const char* page : {"<!DOCTYPE html><html></html>", "<html><body>404</body></html>"})
    EXPECT_THAT(error(page), HasSubstr("a web page"));
  EXPECT_THAT(error(std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10)), HasSubstr("is compressed (gzip) and no safetensors file: unpack it"));
  EXPECT_THAT(error("GGUF\x03......"), HasSubstr("is a GGUF file and no safetensors file: load it by the library that wrote it"));
}

TEST(SafetensorsTest, RefusesAHeaderLengthThatCannotBe) {
  const base::TempFolder folder;
  const auto error = [&](std::string bytes) { return std::string(SafetensorsFile::Open(folder.Write("f", bytes)).status().message()); };
  EXPECT_THAT(error("1234"), HasSubstr("4 bytes, too few"));
  EXPECT_THAT(error(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)), HasSubstr("claims a header of 18446744073709551615"));
  EXPECT_THAT(error(std::string("\0\0\0\x06\0\0\0\0{}", 10)), HasSubstr("claims a header of 100663296 bytes but has only 10"));
  EXPECT_THAT(error(File("", "")), HasSubstr("no JSON object"));
}

}  // namespace
}  // namespace fusionllm::checkpoint
