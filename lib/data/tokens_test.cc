#include "lib/data/tokens.h"

#include <bit>
#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/data/sampler.h"

namespace fusionllm::data {
namespace {

using tensor::DType;
using tensor::Tensor;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Ids = std::vector<int32_t>;

DatasetConfig Text(const base::TempFolder& folder, std::vector<std::string> paths, int64_t length) {
  DatasetConfig config;
  config.paths = std::move(paths);
  config.base_folder = folder.path();
  config.sequence_length = length;
  return config;
}

DatasetConfig Tokens(const base::TempFolder& folder, std::vector<std::string> paths, int64_t length) {
  DatasetConfig config = Text(folder, std::move(paths), length);
  config.kind = DatasetKind::kTokens;
  return config;
}

struct Window {
  Ids inputs, targets;
};

Window Read(const Dataset& dataset, int64_t index) {
  const int64_t length = dataset.targets_per_sample();
  Tensor inputs({DType::kI32, {1, length}}), targets({DType::kI32, {1, length}});
  const absl::Status status = dataset.FillBatch(std::vector<int64_t>{index}, inputs.view(), targets.view());
  EXPECT_TRUE(status.ok()) << status;
  return {Ids(inputs.as<int32_t>(), inputs.as<int32_t>() + length), Ids(targets.as<int32_t>(), targets.as<int32_t>() + length)};
}

std::string U16(std::initializer_list<int> ids) {
  std::string bytes;
  for (const int id : ids) bytes += {static_cast<char>(id & 0xff), static_cast<char>(id >> 8)};
  return bytes;
}

TEST(TokenWindowsTest, CutsBytesIntoWindowsWithTargetsOneFurther) {
  const base::TempFolder folder;
  folder.Write("text", "abcdefghi\xff");
  DatasetConfig config = Text(folder, {"text"}, 3);
  config.encoding = TextEncoding::kBytes;
  const auto dataset = OpenDataset(config);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ((*dataset)->size(), 3);
  EXPECT_THAT(Read(**dataset, 0).inputs, ElementsAre('a', 'b', 'c'));
  EXPECT_THAT(Read(**dataset, 0).targets, ElementsAre('b', 'c', 'd'));
  EXPECT_THAT(Read(**dataset, 2).targets, ElementsAre('h', 'i', 255));
}

TEST(TokenWindowsTest, NeedsOneTokenMoreThanTheWindows) {
  const base::TempFolder folder;
  folder.Write("six", "abcdef");
  folder.Write("seven", "abcdefg");
  EXPECT_EQ(OpenDataset(Text(folder, {"six"}, 3)).value()->size(), 1);
  EXPECT_EQ(OpenDataset(Text(folder, {"seven"}, 3)).value()->size(), 2);
}

TEST(TokenWindowsTest, RunsWindowsAcrossFilesEvenEmptyOnes) {
  const base::TempFolder folder;
  folder.Write("docs/1", "ab");
  folder.Write("docs/2", "");
  folder.Write("docs/3", "c");
  folder.Write("last", "defg");
  const auto dataset = OpenDataset(Text(folder, {"docs", "last"}, 2));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ((*dataset)->size(), 3);
  EXPECT_THAT(Read(**dataset, 0).targets, ElementsAre('b', 'c'));
  EXPECT_THAT(Read(**dataset, 1).inputs, ElementsAre('c', 'd'));
  EXPECT_THAT(Read(**dataset, 2).targets, ElementsAre('f', 'g'));
}

TEST(TokenWindowsTest, ReadsTheSameBytesFromMoreFilesThanDescriptors) {
  const base::TempFolder folder;
  std::string all;
  for (int i = 0; i < 300; ++i) {
    const std::string text = absl::StrCat("file ", 1000 + i);
    folder.Write(absl::StrCat("docs/", 1000 + i), text);
    all += text;
  }
  const auto dataset = OpenDataset(Text(folder, {"docs"}, 20));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::string read;
  for (int64_t i = 0; i < (*dataset)->size(); ++i) {
    for (const int32_t id : Read(**dataset, i).inputs) read += static_cast<char>(id);
  }
  EXPECT_EQ(read, all.substr(0, read.size()));
  EXPECT_GE(read.size(), all.size() - 20);
}

TEST(TokenWindowsTest, ReadsLittleEndianTokensOfBothWidths) {
  const base::TempFolder folder;
  folder.Write("a.bin", U16({1, 50256, 3, 65535}));
  folder.Write("b.u32", std::string("\x01\0\0\0\0\0\x01\0\xff\xff\xff\x7f", 12));
  EXPECT_THAT(Read(*OpenDataset(Tokens(folder, {"a.bin"}, 3)).value(), 0).targets, ElementsAre(50256, 3, 65535));
  EXPECT_THAT(Read(*OpenDataset(Tokens(folder, {"b.u32"}, 2)).value(), 0).targets, ElementsAre(65536, 2147483647));
  DatasetConfig forced = Tokens(folder, {"a.bin"}, 1);
  forced.token_dtype = "uint32";
  EXPECT_EQ(OpenDataset(forced).status().code(), absl::StatusCode::kInvalidArgument) << "50256 << 16 is no id";
}

// Both widths are called .bin: read at the wrong one, a text would be half zeros and nothing would say so.
TEST(TokenWindowsTest, TellsTheWidthOfABinFileFromItsContentOrTheVocabulary) {
  const base::TempFolder folder;
  std::string narrow, wide;
  for (int id = 100; id < 200; ++id) {
    narrow += U16({id, id % 10 == 0 ? 0 : id});
    wide += U16({id, 0});
  }
  folder.Write("narrow.bin", narrow);
  folder.Write("wide.bin", wide);
  folder.Write("more/1.bin", wide);
  folder.Write("more/2.bin", U16({7, 0}));  // too short to tell: as its neighbour
  folder.Write("two/1.bin", wide);
  folder.Write("two/2.bin", narrow);
  folder.Write("cut-at-the-end.bin", wide.substr(0, wide.size() - 2));
  folder.Write("big.bin", U16({1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(OpenDataset(Tokens(folder, {"narrow.bin"}, 1)).value()->size(), 199);
  EXPECT_THAT(Read(*OpenDataset(Tokens(folder, {"wide.bin"}, 3)).value(), 0).targets, ElementsAre(101, 102, 103));
  EXPECT_EQ(OpenDataset(Tokens(folder, {"more"}, 1)).value()->size(), 100);
  EXPECT_THAT(OpenDataset(Tokens(folder, {"two"}, 1)).status().message(),
              AllOf(HasSubstr("32 and 16 bits"), HasSubstr("set spec.data.tokenDtype")));
  EXPECT_THAT(OpenDataset(Tokens(folder, {"cut-at-the-end.bin"}, 1)).status().message(), HasSubstr("4-byte tokens: is it cut off?"));
  DatasetConfig config = Tokens(folder, {"big.bin"}, 2);
  config.vocabulary_size = 1 << 20;
  EXPECT_THAT(Read(*OpenDataset(config).value(), 0).targets, ElementsAre(0x20002, 0x30003));
  config = Tokens(folder, {"wide.bin"}, 1);
  config.token_dtype = "uint16";
  EXPECT_EQ(OpenDataset(config).value()->size(), 199);
}

// What np.array(ids).tofile() and np.save() write.
TEST(TokenWindowsTest, FilesThatNumpyWritesByDefaultAreRefusedWithTheRemedy) {
  const base::TempFolder folder;
  std::string ids64, ids32, ids16;
  for (int i = 0; i < 4096; ++i) {
    const std::string low = {static_cast<char>(i % 251), static_cast<char>(i % 3)};
    ids16 += low;
    ids32 += low + std::string(2, '\0');
    ids64 += low + std::string(6, '\0');
  }
  folder.Write("ids64.bin", ids64);
  folder.Write("ids64.u32", ids64);
  folder.Write("ids32.bin", ids32);
  folder.Write("ids16.bin", ids16);
  folder.Write("saved.bin", "\x93NUMPY\x01" + std::string(121, ' ') + ids16);
  for (const std::string name : {"ids64.bin", "ids64.u32"}) {
    EXPECT_THAT(std::string(OpenDataset(Tokens(folder, {name}, 4)).status().message()),
                AllOf(HasSubstr(name), HasSubstr("ids of 64 bits, numpy's default"), HasSubstr("ids.astype('<u2').tofile(..)")));
  }
  EXPECT_THAT(std::string(OpenDataset(Tokens(folder, {"saved.bin"}, 4)).status().message()), HasSubstr("is a .npy file"));
  DatasetConfig named = Tokens(folder, {"ids64.bin"}, 4);
  named.token_dtype = "uint32";
  EXPECT_TRUE(OpenDataset(named).ok()) << "who names the width is believed";
  named.paths = {"saved.bin"};
  EXPECT_THAT(std::string(OpenDataset(named).status().message()), HasSubstr("is a .npy file"));
  for (const std::string name : {"ids32.bin", "ids16.bin"}) {
    const auto dataset = OpenDataset(Tokens(folder, {name}, 4));
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->size(), 4095 / 4) << name;
  }
}

// Of a whole number below 2048, which a float16 holds exactly: not all compilers have the type.
struct Float16 {
  explicit Float16(uint64_t whole) {
    if (whole == 0) return;
    const int exponent = std::bit_width(whole) - 1;
    bits = static_cast<uint16_t>((15 + exponent) << 10 | ((whole << (10 - exponent)) & 0x3ff));
  }
  uint16_t bits = 0;
};

// The words of frequent ids are small numbers, as in text.
template <typename Number>
std::string NumbersOf(int count) {
  std::mt19937 engine(1);
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    const auto number = static_cast<Number>(std::min(engine() % 2048, engine() % 2048));
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  return bytes;
}

TEST(TokenWindowsTest, IdsThatAreFloatsAreRefusedUnlessTheWidthIsNamed) {
  const base::TempFolder folder;
  const auto refusal = [&](const std::string& name, const std::string& bytes) {
    folder.Write(name, bytes);
    return std::string(OpenDataset(Tokens(folder, {name}, 4)).status().message());
  };
  EXPECT_THAT(refusal("half.bin", NumbersOf<Float16>(400)), AllOf(HasSubstr("ids of type float16"), HasSubstr("ids.astype('<u2')")));
  EXPECT_THAT(refusal("half.u16", NumbersOf<Float16>(400)), HasSubstr("ids of type float16"));
  EXPECT_THAT(refusal("single.bin", NumbersOf<float>(400)), HasSubstr("ids of type float32"));
  EXPECT_THAT(refusal("double.u32", NumbersOf<double>(400)), HasSubstr("ids of type float64"));
  EXPECT_EQ(refusal("ids.bin", NumbersOf<uint16_t>(400)), "");
  EXPECT_EQ(refusal("ids.u32", NumbersOf<uint32_t>(400)), "");
  std::string high;  // ids in the range that whole float16 have, as of a tokenizer of sounds
  for (int id = 15360; id < 26624; ++id) high += U16({id});
  EXPECT_EQ(refusal("high.bin", high), "");
  DatasetConfig named = Tokens(folder, {"half.bin"}, 4);
  named.token_dtype = "uint16";
  EXPECT_TRUE(OpenDataset(named).ok());
}

TEST(TokenWindowsTest, IdsOf32BitsInAFileThatSays16AreRefusedUnlessTheWidthIsNamed) {
  const base::TempFolder folder;
  folder.Write("wide.u16", NumbersOf<uint32_t>(400));
  EXPECT_THAT(std::string(OpenDataset(Tokens(folder, {"wide.u16"}, 4)).status().message()),
              AllOf(HasSubstr("wide.u16 looks like ids of 32 bits, and its name says 16"), HasSubstr("call it .u32")));
  DatasetConfig named = Tokens(folder, {"wide.u16"}, 4);
  named.token_dtype = "uint16";
  EXPECT_TRUE(OpenDataset(named).ok());
}

TEST(TokenWindowsTest, ReportsSwappedByteOrderByVocabulary) {
  const base::TempFolder folder;
  std::string swapped = NumbersOf<uint16_t>(400);
  for (size_t i = 0; i < swapped.size(); i += 2) std::swap(swapped[i], swapped[i + 1]);
  folder.Write("big.bin", swapped);
  folder.Write("beyond.bin", U16({1, 2, 30000, 4, 5}));
  const auto refusal = [&](const std::string& name) {
    DatasetConfig config = Tokens(folder, {name}, 4);
    config.vocabulary_size = 2048;
    return std::string(OpenDataset(config).status().message());
  };
  EXPECT_THAT(refusal("big.bin"),
              AllOf(HasSubstr("outside the vocabulary of 2048"), HasSubstr("read big-endian they would all be inside")));
  EXPECT_THAT(refusal("beyond.bin"), AllOf(HasSubstr("token 30000"), Not(HasSubstr("big-endian"))));
}

TEST(TokenWindowsTest, FilesOfOtherFormatsAreRefusedAsIdsWhateverTheirName) {
  const base::TempFolder folder;
  const std::string rest(1000, '\x01');
  const std::vector<std::pair<std::string, const char*>> files = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n\n", "a pointer of Git LFS"},
      {"PK\x03\x04" + rest, "a zip archive"},
      {std::string("\x1f\x8b\x08\0", 4) + rest, "compressed (gzip)"},
      {"\x28\xb5\x2f\xfd" + rest, "compressed (zstd)"},
      {"PAR1" + rest, "a Parquet file"},
      {std::string("ARROW1\0\0", 8) + rest, "an Arrow file"},
      {"\x89HDF\r\n\x1a\n" + rest, "an HDF5 file"},
      {std::string("\x40\0\0\0\0\0\0\0{\"a\"", 12) + rest, "a safetensors file"}};
  for (const auto& [bytes, what] : files) {
    for (const char* name : {"f.bin", "f.u16", "f.u32"}) {
      folder.Write(name, bytes);
      DatasetConfig config = Tokens(folder, {name}, 4);
      EXPECT_THAT(std::string(OpenDataset(config).status().message()), HasSubstr(absl::StrCat(name, " is ", what, ", whose bytes")));
      config.token_dtype = "uint16";
      EXPECT_FALSE(OpenDataset(config).ok()) << what << ": no width makes ids of it";
    }
  }
}

TEST(TokenWindowsTest, APointerToAFileIsNoText) {
  const base::TempFolder folder;
  folder.Write("d/a.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n");
  const std::string named(OpenDataset(Text(folder, {"d/a.txt"}, 3)).status().message());
  EXPECT_THAT(named, AllOf(HasSubstr("a.txt is not UTF-8 text: it is a pointer of Git LFS"), HasSubstr("git lfs pull")));
  EXPECT_THAT(std::string(OpenDataset(Text(folder, {"d"}, 3)).status().message()), HasSubstr("git lfs pull"));
}

TEST(TokenWindowsTest, NamesFileAndOffsetOfATokenOutsideTheVocabulary) {
  const base::TempFolder folder;
  folder.Write("a.bin", U16({1, 2, 3}));
  folder.Write("b.bin", U16({4, 100, 5}));
  DatasetConfig config = Tokens(folder, {"a.bin", "b.bin"}, 2);
  config.vocabulary_size = 101;
  EXPECT_TRUE(OpenDataset(config).ok());
  config.vocabulary_size = 100;
  EXPECT_THAT(OpenDataset(config).status().message(),
              AllOf(HasSubstr("token 100 at byte 2 of"), HasSubstr("b.bin"), HasSubstr("vocabulary of 100")));
}

TEST(TokenWindowsTest, FindsABadTokenThatAppearsAfterOpening) {
  const base::TempFolder folder;
  folder.Write("a.bin", U16({1, 2, 3}));
  DatasetConfig config = Tokens(folder, {"a.bin"}, 2);
  config.vocabulary_size = 10;
  const auto dataset = OpenDataset(config);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  folder.Write("a.bin", U16({1, 2, 30}));
  Tensor inputs({DType::kI32, {1, 2}});
  EXPECT_THAT((*dataset)->FillBatch(std::vector<int64_t>{0}, inputs.view(), {}).message(), HasSubstr("token 30 at byte 4"));
}

TEST(TokenWindowsTest, SaysWhatIsWrongWithTheData) {
  const base::TempFolder folder;
  folder.Write("odd.bin", "abc");
  folder.Write("wide.u32", "abcdef");
  folder.Write("short", "abc");
  folder.Write("empty", "");
  folder.Write("x.tokens", "abcd");
  folder.Write("a.u16", "abcdef");
  folder.Write("b.u32", "abcdabcd");
  const auto text = [&](absl::string_view path, int64_t length) {
    return std::string(OpenDataset(Text(folder, {std::string(path)}, length)).status().message());
  };
  const auto tokens = [&](std::vector<std::string> paths) { return std::string(OpenDataset(Tokens(folder, paths, 1)).status().message()); };
  EXPECT_THAT(tokens({"odd.bin"}), AllOf(HasSubstr("odd.bin has 3 bytes"), HasSubstr("2-byte tokens")));
  EXPECT_THAT(tokens({"wide.u32"}), AllOf(HasSubstr("wide.u32 has 6 bytes"), HasSubstr("4-byte tokens")));
  EXPECT_THAT(tokens({"x.tokens"}), HasSubstr("token width of"));
  EXPECT_THAT(tokens({"a.u16", "b.u32"}), HasSubstr("different widths"));
  EXPECT_THAT(text("short", 3), AllOf(HasSubstr("3 tokens"), HasSubstr("needs 4")));
  EXPECT_THAT(text("empty", 3), HasSubstr("the data is empty"));
  EXPECT_THAT(text("short", 0), HasSubstr("sequence length is 0"));
  EXPECT_THAT(text("short", int64_t{1} << 50), HasSubstr("sequence length"));
  EXPECT_THAT(text("none", 3), HasSubstr("does not exist"));
}

TEST(TokenWindowsTest, ANamedFileThatIsNoTextIsRefused) {
  const base::TempFolder folder;
  folder.Write("a.gz", std::string("\x1f\x8b\x08\0", 4) + "compressed");
  folder.Write("latin1.txt", "caf\xe9 au lait");
  folder.Write("nul.bin", std::string("some\0thing", 10));
  const auto why = [&](const std::string& path) { return std::string(OpenDataset(Text(folder, {path}, 3)).status().message()); };
  EXPECT_THAT(why("a.gz"), AllOf(HasSubstr("a.gz is not UTF-8 text: it is compressed (gzip)"), HasSubstr("spec.data.encoding: bytes")));
  EXPECT_THAT(why("latin1.txt"), AllOf(HasSubstr("byte 0xe9 at offset 3"), HasSubstr("iconv")));
  EXPECT_THAT(why("latin1.txt"), HasSubstr("iconv -f latin1 -t utf-8"));
  EXPECT_THAT(why("nul.bin"), AllOf(HasSubstr("a NUL byte at offset 4"), Not(HasSubstr("iconv"))));
  DatasetConfig config = Text(folder, {"latin1.txt"}, 3);
  config.encoding = TextEncoding::kBytes;
  EXPECT_EQ(Read(*OpenDataset(config).value(), 1).inputs, (Ids{0xe9, ' ', 'a'}));
}

TEST(TokenWindowsTest, TextInAnotherEncodingIsRefusedWithTheCommandThatConvertsIt) {
  const base::TempFolder folder;
  std::string little, big, wide;
  for (const char c : std::string("some words")) {
    little += {c, '\0'};
    big += {'\0', c};
    wide += {c, '\0', '\0', '\0'};
  }
  const struct {
    std::string text;
    const char* encoding;
  } cases[] = {{"\xff\xfe" + little, "utf-16 "},
               {"\xfe\xff" + big, "utf-16 "},
               {std::string("\xff\xfe\0\0", 4) + wide, "utf-32 "},
               {little, "utf-16le "},
               {big, "utf-16be "}};
  for (const auto& one : cases) {
    folder.Write("text", one.text);
    const std::string said(OpenDataset(Text(folder, {"text"}, 3)).status().message());
    EXPECT_THAT(said, AllOf(HasSubstr(absl::StrCat("iconv -f ", one.encoding, "-t utf-8")), Not(HasSubstr("latin1"))));
    folder.Write("only/text", one.text);
    EXPECT_THAT(std::string(OpenDataset(Text(folder, {"only"}, 3)).status().message()), HasSubstr(absl::StrCat("iconv -f ", one.encoding)));
  }
}

TEST(TokenWindowsTest, AFileWithTheHeaderOfLlmcIsRefusedWithTheCommandThatStripsIt) {
  const base::TempFolder folder;
  const auto header = [](const std::string& magic) { return magic + std::string("\x01\0\0\0", 4) + std::string(1016, '\0'); };
  const std::string ids = U16({7, 8, 9, 10, 11, 12, 13, 14});
  folder.Write("a.bin", header("\x88\xd8\x34\x01") + ids);
  folder.Write("b.u32", header("\xa1\xd9\x34\x01") + ids);
  folder.Write("short.bin", "\x88\xd8\x34\x01" + ids);
  const auto said = [&](const std::string& name, const std::string& dtype) {
    DatasetConfig config = Tokens(folder, {name}, 3);
    config.token_dtype = dtype;
    return std::string(OpenDataset(config).status().message());
  };
  for (const char* dtype : {"", "uint16"}) {
    EXPECT_THAT(said("a.bin", dtype),
                AllOf(HasSubstr("a.bin begins with the header of llm.c's files of tokens (magic 20240520, 1024 bytes)"),
                      HasSubstr("strip it by tail -c +1025 FILE > NEW.u16")));
  }
  EXPECT_THAT(said("b.u32", ""), AllOf(HasSubstr("magic 20240801"), HasSubstr("NEW.u32")));
  EXPECT_EQ(said("short.bin", ""), "") << "ids that happen to begin so";
}

TEST(TokenWindowsTest, SkipsAndReportsNonTextFilesOfFolder) {
  const base::TempFolder folder;
  folder.Write("d/a.txt", "aaaa");
  folder.Write("d/b.txt.gz", "\x1f\x8b...");
  folder.Write("d/c.txt", "na\xc3\xafve");
  const auto dataset = OpenDataset(Text(folder, {"d"}, 3));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 3);
  EXPECT_THAT(Read(**dataset, 1).inputs, ElementsAre('a', 'n', 'a'));
  const FilesRead& files = (*dataset)->files();
  EXPECT_EQ(files.count, 2);
  EXPECT_EQ(files.bytes, 10);
  ASSERT_EQ(files.skipped_count, 1);
  EXPECT_THAT(files.skipped[0].path, HasSubstr("d/b.txt.gz"));
  EXPECT_EQ(files.skipped[0].why, "it is compressed (gzip)");
  EXPECT_EQ(files.first[1].bytes, 6);
  std::filesystem::remove(folder / "d/a.txt");
  std::filesystem::remove(folder / "d/c.txt");
  EXPECT_THAT(OpenDataset(Text(folder, {"d"}, 3)).status().message(), HasSubstr("no file of the data is UTF-8 text; of 1 the first is"));
}

TEST(TokenWindowsTest, BytesAreRefusedAsIdsOf16BitsUnlessTheWidthIsNamed) {
  const base::TempFolder folder;
  std::mt19937 engine(1);
  std::string text_bytes, words, narrow, uniform;
  for (int i = 0; i < 4000; ++i) {
    text_bytes += "the quick brown fox, "[engine() % 21];
    words += U16({static_cast<int>(std::min(engine() % 50257, engine() % 50257))});
    narrow += U16({static_cast<int>(engine() % 90)});
    uniform += U16({static_cast<int>(engine() % 50257)});
  }
  folder.Write("ids8.bin", text_bytes);
  const absl::Status refused = OpenDataset(Tokens(folder, {"ids8.bin"}, 16)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("ids8.bin looks like text or ids of 8 bits"), HasSubstr("spec.data.kind: text"),
                                       HasSubstr("spec.data.tokenDtype: uint16")));
  DatasetConfig named = Tokens(folder, {"ids8.bin"}, 16);
  named.token_dtype = "uint16";
  EXPECT_TRUE(OpenDataset(named).ok());
  folder.Write("ids8.u16", text_bytes);
  EXPECT_TRUE(OpenDataset(Tokens(folder, {"ids8.u16"}, 16)).ok()) << "its name says the width";
  for (const std::string& ids : {words, narrow, uniform}) {
    folder.Write("ids16.bin", ids);
    EXPECT_TRUE(OpenDataset(Tokens(folder, {"ids16.bin"}, 16)).ok());
  }
}

TEST(TokenWindowsTest, IdsAreCountedForTokensAlone) {
  const base::TempFolder folder;
  folder.Write("ids.bin", U16({7, 9, 7, 300, 4, 50256}));
  const auto dataset = OpenDataset(Tokens(folder, {"ids.bin"}, 2));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const std::optional<FilesRead::TokenIds> ids = (*dataset)->files().ids;  // the sixth is in no window
  ASSERT_TRUE(ids.has_value());
  EXPECT_EQ(ids->bits, 16);
  EXPECT_EQ(ids->count, 5);
  EXPECT_EQ(ids->checked, 5);
  EXPECT_EQ(ids->min_id, 4);
  EXPECT_EQ(ids->max_id, 300);
  EXPECT_EQ(ids->distinct, 4);
  folder.Write("text", "abcdef");
  EXPECT_FALSE(OpenDataset(Text(folder, {"text"}, 2)).value()->files().ids.has_value());
}

TEST(TokenWindowsTest, ReportsAFileCutOffWhileTraining) {
  const base::TempFolder folder;
  const std::string path = folder.Write("text", "abcdefghij");
  const auto dataset = OpenDataset(Text(folder, {"text"}, 3));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::filesystem::resize_file(path, 5);
  Tensor inputs({DType::kI32, {1, 3}});
  const absl::Status status = (*dataset)->FillBatch(std::vector<int64_t>{1}, inputs.view(), {});
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(path));
}

TEST(TokenWindowsTest, AnEpochReadsEveryTokenOnce) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 engine(seed);
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine); };
    const base::TempFolder folder;
    const int length = draw(1, 9);
    int next = 0;  // token ids count up, so that a window says where it is from
    for (int file = 0; file < 4; ++file) {
      std::string bytes;
      for (int n = draw(file == 0 ? length + 1 : 0, 60); n > 0; --n, ++next) bytes += U16({next});
      folder.Write(absl::StrCat("d/", file, ".bin"), bytes);
    }
    const auto dataset = OpenDataset(Tokens(folder, {"d"}, length));
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    ASSERT_EQ((*dataset)->size(), (next - 1) / length);
    const Sampler sampler = Sampler::Create((*dataset)->size(), seed).value();
    std::vector<int> seen(static_cast<size_t>(next), 0);
    for (int64_t i = 0; i < sampler.samples(); ++i) {
      const Window window = Read(**dataset, sampler.SampleAt(i));
      for (size_t t = 0; t < window.inputs.size(); ++t) {
        ++seen[static_cast<size_t>(window.inputs[t])];
        EXPECT_EQ(window.targets[t], window.inputs[t] + 1);
      }
    }
    for (int token = 0; token < next; ++token)
      EXPECT_EQ(seen[static_cast<size_t>(token)], token < (next - 1) / length * length ? 1 : 0) << token;
  }
}

}  // namespace
}  // namespace fusionllm::data
