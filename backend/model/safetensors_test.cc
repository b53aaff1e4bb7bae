#include "backend/model/safetensors.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq {
namespace {

namespace fs = std::filesystem;

class SafetensorsTest : public testing::Test {
 protected:
  SafetensorsTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = fs::path(testing::TempDir()) / (std::string("safetensors_") + info->name());
  }
  ~SafetensorsTest() override { fs::remove(path_); }

  void Write(std::string_view header, size_t data_bytes, int64_t length_error = 0) {
    const uint64_t length = header.size() + static_cast<uint64_t>(length_error);
    std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
    file += header;
    file.append(data_bytes, '\1');
    ASSERT_TRUE(WriteTextFile(path_, file));
  }

  // What Open() says, without the path in front.
  std::string ErrorOf(std::string_view header, size_t data_bytes, int64_t length_error = 0) {
    Write(header, data_bytes, length_error);
    const auto file = SafetensorsFile::Open(path_);
    if (file) return "accepted";
    const std::string start = path_.string() + ": ";
    EXPECT_TRUE(file.error().message.starts_with(start)) << file.error().message;
    return file.error().message.substr(start.size());
  }

  // The error of a file whose tensor "t" (8 bytes of data) has this entry.
  std::string EntryError(const std::string& entry) { return ErrorOf("{\"t\":" + entry + "}", 8); }

  fs::path path_;
};

TEST_F(SafetensorsTest, ReadsWhatWasWritten) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const size_t padding : {0, 1, 2, 3}) {  // so that data starts at odd addresses too
      TinyCheckpointOptions options;
      options.dtype = dtype;
      const std::vector<StoredTensor> tensors = TinyTensors(options);
      ASSERT_TRUE(WriteSafetensors(path_, tensors, padding));
      const auto file = SafetensorsFile::Open(path_);
      ASSERT_TRUE(file) << file.error().message;
      ASSERT_EQ(file->tensors().size(), tensors.size());
      for (const StoredTensor& tensor : tensors) {
        const TensorView& view = file->tensors().at(tensor.name);
        EXPECT_EQ(view.dtype, dtype);
        EXPECT_EQ(view.shape, tensor.shape);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % DTypeBytes(dtype), 0U);
        EXPECT_EQ(std::memcmp(view.data, tensor.bytes.data(), tensor.bytes.size()), 0);
      }
    }
  }
}

TEST_F(SafetensorsTest, ViewsOutliveAMoveOfTheFile) {
  TinyCheckpointOptions options;
  const std::vector<StoredTensor> tensors = TinyTensors(options);
  ASSERT_TRUE(WriteSafetensors(path_, tensors, 1));
  auto opened = SafetensorsFile::Open(path_);
  ASSERT_TRUE(opened);
  const SafetensorsFile file = *std::move(opened);
  const TensorView& view = file.tensors().at(tensors[3].name);
  EXPECT_EQ(std::memcmp(view.data, tensors[3].bytes.data(), tensors[3].bytes.size()), 0);
}

TEST_F(SafetensorsTest, AcceptsEmptyTensorsAndScalars) {
  EXPECT_EQ(ErrorOf(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                    R"("b":{"dtype":"F16","shape":[0,3],"data_offsets":[4,4]}})",
                    4),
            "accepted");
  EXPECT_EQ(ErrorOf("{}", 0), "accepted");
}

TEST_F(SafetensorsTest, ChecksTheHeadersLength) {
  EXPECT_EQ(ErrorOf("{}", 0, 1),
            "header length is 3; at most 2 is allowed (the file has 10 bytes: truncated, or not a "
            "safetensors file)");
  EXPECT_NE(ErrorOf("{}", 0, -3), "accepted");  // 2^64 - 1
  EXPECT_NE(ErrorOf("{}", 0, -1), "accepted");
  ASSERT_TRUE(WriteTextFile(path_, "1234567"));
  const auto file = SafetensorsFile::Open(path_);
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message.find("is 7 bytes long"), std::string::npos);
  ASSERT_TRUE(WriteTextFile(path_, ""));
  EXPECT_FALSE(SafetensorsFile::Open(path_));
}

TEST_F(SafetensorsTest, ChecksTheHeadersJson) {
  EXPECT_TRUE(ErrorOf("{\"a\":", 0).starts_with("not valid JSON"));
  EXPECT_EQ(ErrorOf("[]", 0), "holds []; a JSON object is needed");
  EXPECT_EQ(ErrorOf(R"({"t":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                    R"("t":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
                    0),
            "key 't' appears twice in one object; once is allowed");
}

TEST_F(SafetensorsTest, ChecksEntries) {
  EXPECT_EQ(EntryError("7"), "tensor 't': entry is 7; an object is needed");
  EXPECT_EQ(EntryError(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1})"),
            "tensor 't': more is 1; dtype, shape and data_offsets are the keys allowed");
  EXPECT_EQ(EntryError(R"({"shape":[2],"data_offsets":[0,8]})"),
            "tensor 't': dtype is null; F32, F16 or BF16 is supported");
  EXPECT_EQ(EntryError(R"({"dtype":"I64","shape":[1],"data_offsets":[0,8]})"),
            "tensor 't': dtype is \"I64\"; F32, F16 or BF16 is supported");
}

TEST_F(SafetensorsTest, ChecksShapes) {
  const auto with_shape = [this](const std::string& shape) {
    return EntryError(R"({"dtype":"F32","data_offsets":[0,8],"shape":)" + shape + "}");
  };
  EXPECT_EQ(with_shape("[2]"), "accepted");
  EXPECT_EQ(with_shape("2"), "tensor 't': shape is 2; a list of at most 8 extents is allowed");
  EXPECT_NE(with_shape("[1,1,1,1,1,1,1,1,2]"), "accepted");
  for (const char* shape :
       {"[-2]", "[2.0]", "[\"2\"]", "[null]", "[true]", "[18446744073709551615]",
        "[4294967296,4294967296,4294967296]", "[9223372036854775807]"}) {
    EXPECT_EQ(with_shape(shape), std::string("tensor 't': shape is ") + shape +
                                     "; non-negative extents, less than 2^63 bytes together, are "
                                     "allowed");
  }
  EXPECT_EQ(
      with_shape("[3]"),
      "tensor 't': data_offsets is [0,8]; [begin, begin + 12] is needed for its shape and dtype");
}

TEST_F(SafetensorsTest, ChecksOffsets) {
  const auto with_offsets = [this](const std::string& offsets) {
    return EntryError(R"({"dtype":"F32","shape":[2],"data_offsets":)" + offsets + "}");
  };
  EXPECT_EQ(with_offsets("[0,8]"), "accepted");
  for (const char* offsets : {"8", "[0]", "[0,8,8]", "[8,0]", "[-8,0]", "[0,8.0]", "[\"0\",8]",
                              "[18446744073709551608,0]", "[0,4]", "{}"}) {
    EXPECT_EQ(with_offsets(offsets), std::string("tensor 't': data_offsets is ") + offsets +
                                         "; [begin, begin + 8] is needed for its shape and dtype");
  }
  EXPECT_EQ(with_offsets("[4,12]"),
            "tensor 't': data_offsets begin at 4; 0 is needed, where the tensor before ends");
  EXPECT_NE(with_offsets("[18446744073709551600,18446744073709551608]"), "accepted");
}

TEST_F(SafetensorsTest, ChecksThatTensorsCoverTheData) {
  const auto two = [this](const std::string& first, const std::string& second, size_t bytes) {
    return ErrorOf(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":)" + first +
                       R"(},"b":{"dtype":"F32","shape":[2],"data_offsets":)" + second + "}}",
                   bytes);
  };
  EXPECT_EQ(two("[0,8]", "[8,16]", 16), "accepted");
  EXPECT_EQ(two("[8,16]", "[0,8]", 16), "accepted");
  EXPECT_EQ(two("[0,8]", "[4,12]", 12),
            "tensor 'b': data_offsets begin at 4; 8 is needed, where the tensor before ends");
  EXPECT_EQ(two("[0,8]", "[12,20]", 20),
            "tensor 'b': data_offsets begin at 12; 8 is needed, where the tensor before ends");
  EXPECT_EQ(two("[0,8]", "[8,16]", 15),
            "tensor 'b': data_offsets end at 16; the file holds 15 bytes of data (truncated?)");
  EXPECT_EQ(two("[0,8]", "[8,16]", 17), "holds 17 bytes of data; its tensors account for 16");
}

TEST_F(SafetensorsTest, AMissingFileIsNotFound) {
  const auto file = SafetensorsFile::Open(path_ / "nowhere");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace seq2seq
