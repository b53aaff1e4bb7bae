#include "backend/model/json_object.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq {
namespace {

namespace fs = std::filesystem;

std::string ErrorOf(std::string_view text) {
  const auto object = JsonObject::Parse(text, "here.json");
  return object ? "accepted" : object.error().message;
}

JsonObject Good(std::string_view text) {
  auto object = JsonObject::Parse(text, "here.json");
  EXPECT_TRUE(object) << object.error().message;
  return *std::move(object);
}

template <typename T>
std::string MessageOf(const Result<T>& result) {
  return result ? "accepted" : result.error().message;
}

TEST(JsonObject, RefusesWhatIsNoJson) {
  for (const char* text : {"", " ", "{", "{\"a\":}", "{\"a\":1}}", "{\"a\":NaN}", "{\"a\":1e999}",
                           "\xff\xfe", "{\"\xff\":1}", "{'a':1}"}) {
    EXPECT_TRUE(ErrorOf(text).starts_with("here.json: not valid JSON")) << ErrorOf(text);
  }
}

TEST(JsonObject, RefusesOtherTopLevels) {
  EXPECT_EQ(ErrorOf("[1]"), "here.json: holds [1]; a JSON object is needed");
  EXPECT_EQ(ErrorOf("null"), "here.json: holds null; a JSON object is needed");
}

TEST(JsonObject, RefusesRepeatedKeysAtAnyDepth) {
  EXPECT_EQ(ErrorOf(R"({"a": 1, "b": 2, "a": 1})"),
            "here.json: key 'a' appears twice in one object; once is allowed");
  EXPECT_EQ(ErrorOf(R"({"x": [{"c": 1, "c": 2}]})"),
            "here.json: key 'c' appears twice in one object; once is allowed");
  EXPECT_EQ(ErrorOf(R"({"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 2}]})"), "accepted");
}

TEST(JsonObject, RefusesDeepNesting) {
  const auto nested = [](size_t depth) {
    return "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_EQ(ErrorOf(nested(50)), "accepted");
  EXPECT_EQ(ErrorOf(nested(80)), "here.json: JSON nested deeper than the 64 levels allowed");
  EXPECT_EQ(ErrorOf(nested(1000000)), "here.json: JSON nested deeper than the 64 levels allowed");
  std::string objects;
  for (int depth = 0; depth < 100000; ++depth) objects += "{\"a\":";
  EXPECT_NE(ErrorOf(objects), "accepted");
}

TEST(JsonObject, IntegersHaveRanges) {
  const JsonObject object = Good(
      R"({"a": 5, "b": -1, "c": 5.0, "d": true, "e": "5", "f": null, "g": 18446744073709551615})");
  EXPECT_EQ(object.Int("a", {5, 5}).value(), 5);
  EXPECT_EQ(MessageOf(object.Int("a", {6, 9})),
            "here.json: key 'a' is 5; an integer in [6, 9] is allowed");
  EXPECT_EQ(MessageOf(object.Int("b", {0, 9})),
            "here.json: key 'b' is -1; an integer in [0, 9] is allowed");
  EXPECT_EQ(MessageOf(object.Int("c", {0, 9})),
            "here.json: key 'c' is 5.0; an integer in [0, 9] is allowed");
  EXPECT_EQ(MessageOf(object.Int("d", {0, 9})),
            "here.json: key 'd' is true; an integer in [0, 9] is allowed");
  EXPECT_EQ(MessageOf(object.Int("e", {0, 9})),
            "here.json: key 'e' is \"5\"; an integer in [0, 9] is allowed");
  EXPECT_EQ(object.Int("f", {0, 9}).value(), std::nullopt);
  EXPECT_EQ(object.Int("nowhere", {0, 9}).value(), std::nullopt);
  EXPECT_NE(MessageOf(object.Int("g", {INT64_MIN, INT64_MAX})), "accepted");
  EXPECT_EQ(MessageOf(object.RequiredInt("nowhere", {0, 9})),
            "here.json: key 'nowhere' is absent; an integer in [0, 9] is needed");
}

TEST(JsonObject, RealNumbersHaveRanges) {
  const JsonObject object = Good(R"({"a": 0.5, "b": 1, "c": 0, "d": false, "e": "1"})");
  EXPECT_EQ(object.Real("a", {0.0, 1.0}).value(), 0.5);
  EXPECT_EQ(object.Real("b", {0.0, 1.0}).value(), 1.0);
  EXPECT_EQ(object.Real("c", {0.0, 1.0}).value(), 0.0);
  EXPECT_EQ(MessageOf(object.Real("c", {0.0, 1.0, true})),
            "here.json: key 'c' is 0; a number in (0, 1] is allowed");
  EXPECT_EQ(MessageOf(object.Real("b", {0.0, 0.5})),
            "here.json: key 'b' is 1; a number in [0, 0.5] is allowed");
  EXPECT_NE(MessageOf(object.Real("d", {0.0, 1.0})), "accepted");
  EXPECT_NE(MessageOf(object.Real("e", {0.0, 1.0})), "accepted");
}

TEST(JsonObject, StringsAndBooleansAreTyped) {
  const JsonObject object = Good(R"({"a": "text", "b": true, "c": 1})");
  EXPECT_EQ(object.String("a").value(), "text");
  EXPECT_EQ(object.Bool("b").value(), true);
  EXPECT_EQ(MessageOf(object.String("c")), "here.json: key 'c' is 1; a string is allowed");
  EXPECT_EQ(MessageOf(object.Bool("c")), "here.json: key 'c' is 1; true or false is allowed");
}

TEST(JsonObject, LongValuesAreShortened) {
  const JsonObject object = Good("{\"a\": \"" + std::string(10000, 'x') + "\"}");
  EXPECT_LT(MessageOf(object.Int("a", {0, 1})).size(), 200U);
}

TEST(JsonObject, FilesMustBeRegularAndSmall) {
  const fs::path directory = fs::path(testing::TempDir()) / "json_object_test";
  fs::create_directories(directory);
  ASSERT_TRUE(WriteTextFile(directory / "a.json", "{\"a\": 1}"));
  EXPECT_TRUE(JsonObject::ReadFile(directory / "a.json", 8));
  EXPECT_EQ(MessageOf(JsonObject::ReadFile(directory / "a.json", 7)),
            (directory / "a.json").string() + ": is 8 bytes long; at most 7 are allowed");

  const auto absent = JsonObject::ReadFile(directory / "b.json", 8);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_NE(absent.error().message.find("b.json"), std::string::npos);

  EXPECT_EQ(MessageOf(JsonObject::ReadFile(directory, 8)),
            directory.string() + ": not a regular file");
  const fs::path pipe = directory / "pipe";
  fs::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);  // must not hang either
  EXPECT_EQ(MessageOf(JsonObject::ReadFile(pipe, 8)), pipe.string() + ": not a regular file");
}

}  // namespace
}  // namespace seq2seq
