#include "engine/data/btok.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>

#include "engine/btok_bytes.h"
#include "engine/errors.h"
#include "engine/scratch_directory.h"

namespace andrea {
namespace {

using namespace andrea::testing;

class Btok : public ::testing::Test {
 protected:
  std::string write(const std::string& bytes) {
    write_bytes(path_, bytes);
    return path_;
  }
  /// The refusal of the file, at opening or at reading it through.
  std::string refusal(const std::string& bytes, std::int64_t vocab_size = 300) {
    write(bytes);
    const std::string message = message_of<DataError>([&] { BtokFile(path_).verify(vocab_size); });
    EXPECT_HAS(message, path_);
    return message;
  }

  ScratchDirectory directory_;
  std::string path_ = directory_.file("a.btok");
  Documents documents_ = documents_of_lengths({3, 1, 5});
};

TEST_F(Btok, ReadsBothWidths) {
  for (const std::uint32_t vocab_size : {300U, 65536U, 65537U}) {
    Documents documents = documents_;
    documents[2][4] = static_cast<std::int32_t>(vocab_size) - 1;
    const BtokFile file(write(btok_bytes(documents, vocab_size)));
    file.verify(vocab_size);
    EXPECT_EQ(file.vocab_size(), vocab_size);
    EXPECT_EQ(file.n_docs(), 3);
    EXPECT_EQ(file.n_tokens(), 9);
    EXPECT_EQ(file.n_bytes(), 27);
    EXPECT_EQ(file.tokenizer_hash(), 7U);
    for (std::int64_t doc = 0; doc < 3; ++doc) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(file.document_length(doc)));
      file.copy_ids(file.document_begin(doc), file.document_length(doc), ids.data());
      EXPECT_EQ(ids, documents[static_cast<std::size_t>(doc)]);
    }
  }
}

TEST_F(Btok, HasADestructorThatSurvivesMoves) {
  BtokFile first(write(btok_bytes(documents_)));
  const BtokFile second(std::move(first));
  second.verify(300);
}

TEST_F(Btok, WhatHappensToTheFileMeanwhileIsNoticed) {
  const std::string bytes = btok_bytes(documents_);
  const BtokFile file(write(bytes));
  file.require_unchanged();
  const auto set_time = [&](std::time_t seconds) {  // a write may come in the same tick as the one before
    const struct timespec times[2] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
  };
  set_time(1000);
  file.require_unchanged();  // touched, but the same
  std::string other = bytes;
  other[other.size() - 2] ^= 1;
  write(other);
  set_time(2000);
  EXPECT_HAS(message_of<DataError>([&] { file.require_unchanged(); }), "the file is damaged");
  write(bytes + "x");
  EXPECT_HAS(message_of<IoError>([&] { file.require_unchanged(); }), std::to_string(bytes.size() + 1));
  write(bytes.substr(0, bytes.size() - 1));
  EXPECT_HAS(message_of<IoError>([&] { file.require_unchanged(); }), path_);
}

TEST_F(Btok, ReadingOutsideIsRefused) {
  const BtokFile file(write(btok_bytes(documents_)));
  std::int32_t ids[16];
  EXPECT_THROW(file.copy_ids(-1, 1, ids), DataError);
  EXPECT_THROW(file.copy_ids(8, 2, ids), DataError);
  EXPECT_THROW(file.copy_ids(std::int64_t{1} << 62, std::int64_t{1} << 62, ids), DataError);
  file.copy_ids(9, 0, ids);
}

TEST_F(Btok, EveryHeaderFieldIsChecked) {
  const BtokFields right = btok_fields(documents_);
  const std::string content = btok_content(documents_, 2);
  const auto with = [&](auto change) {
    BtokFields fields = right;
    change(fields);
    return refusal(btok_bytes(fields, content));
  };
  EXPECT_HAS(with([](BtokFields& f) { f.version = 2; }), "version 2");
  EXPECT_HAS(with([](BtokFields& f) { f.vocab_size = 256; }), "vocabulary size 256");
  EXPECT_HAS(with([](BtokFields& f) { f.width = 4; }), "token width 4");
  EXPECT_HAS(with([](BtokFields& f) { f.vocab_size = 70000; }), "token width 2");
  EXPECT_HAS(with([](BtokFields& f) { f.n_docs = 4; }), "its header promises");
  EXPECT_HAS(with([](BtokFields& f) { f.n_docs = ~std::uint64_t{0}; }), "impossible counts");
  EXPECT_HAS(with([](BtokFields& f) { f.n_tokens = 2; }), "no document may be empty");
  EXPECT_HAS(with([](BtokFields& f) { f.n_bytes = 8; }), "8 bytes of text");
  EXPECT_HAS(with([](BtokFields& f) { f.content_hash ^= 1; }), "damaged");
  std::string bytes = btok_bytes(documents_);
  bytes[63] = 1;
  EXPECT_HAS(refusal(bytes), "must be zero");
  bytes = btok_bytes(documents_);
  bytes[0] = 'X';
  EXPECT_HAS(refusal(bytes), "no .btok file");
}

TEST_F(Btok, EveryTruncationAndEveryFlippedByteIsRefused) {
  const std::string whole = btok_bytes(documents_);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write(whole.substr(0, length));
    EXPECT_THROW(BtokFile(path_).verify(300), DataError) << "cut to " << length;
  }
  refusal(whole + "x");
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (i >= 32 && i < 48) continue;  // n_bytes and the tokenizer's hash: any value may be right
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x10);
    write(bytes);
    EXPECT_THROW(BtokFile(path_).verify(300), DataError) << "byte " << i;
  }
}

TEST_F(Btok, OffsetsMustClimb) {
  const BtokFields fields = btok_fields(documents_);
  std::string content = btok_content(documents_, 2);
  const auto set_offset = [&](std::size_t i, std::uint64_t value) {
    std::string changed = content;
    std::memcpy(changed.data() + 8 * i, &value, 8);
    return btok_bytes(fields, changed);
  };
  EXPECT_HAS(refusal(set_offset(0, 1)), "first offset is 1");
  EXPECT_HAS(refusal(set_offset(1, 4)), "document 1 is empty");
  EXPECT_HAS(refusal(set_offset(1, 0)), "document 0 is empty");
  EXPECT_HAS(refusal(set_offset(2, 3)), "document 1 is empty");
  EXPECT_HAS(refusal(set_offset(3, 10)), "last offset is 10");
}

TEST_F(Btok, IdsOutsideTheVocabularyNameDocumentAndId) {
  documents_[2][1] = 300;
  const std::string message = refusal(btok_bytes(documents_));
  EXPECT_HAS(message, "document 2");
  EXPECT_HAS(message, "id 300");
  EXPECT_HAS(message, "at place 1");
  documents_[2][1] = 256;
  EXPECT_HAS(refusal(btok_bytes(documents_)), "BOS");
}

TEST_F(Btok, AnotherVocabularyNamesBothNumbers) {
  const std::string message = refusal(btok_bytes(documents_), 1281);
  EXPECT_HAS(message, "300");
  EXPECT_HAS(message, "1281");
}

TEST_F(Btok, WhatIsNoFileIsRefused) {
  EXPECT_HAS(message_of<IoError>([&] { BtokFile(directory_.file("none.btok")); }), "No such file");
  EXPECT_HAS(message_of<DataError>([&] { BtokFile{directory_.path()}; }), "not a regular file");
}

}  // namespace
}  // namespace andrea
