/*
 * Configurations of a recommender: the talk's and Meta's, what is written and read again, faults by their words; a part of
 * test_dlrm, which has the context.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_DLRM_CONFIG_H
#define QUERN_TESTS_DLRM_CONFIG_H

static const char *fault_of(const char *words)
{
    qn_dlrm_config c = qn_dlrm_defaults();
    return qn_dlrm_config_parse("m.json", words, &c, &error) ? error.message : "";
}

TEST(configurations)
{
    qn_dlrm_config c = qn_dlrm_defaults();
    EXPECT_OK(qn_dlrm_config_read("small", &c, &error));
    EXPECT(c.dense_hidden_count == 1 && c.dense_hidden[0] == 32 && c.prediction_hidden[0] == 32 && c.batch == 64);
    EXPECT(c.width == 16 && c.sparse_count == 26 && c.dense_count == 13 && c.map == QN_MAP_MODULUS && c.rate == 0.1);
    EXPECT(c.optimizer == QN_SGD); /* a rate without an optimiser */
    EXPECT_TEXT(c.device, "cuda");
    EXPECT_OK(qn_dlrm_config_read("main", &c, &error));
    EXPECT(c.dense_hidden_count == 3 && c.dense_hidden[2] == 64 && c.prediction_hidden_count == 2 && c.batch == 128);
    EXPECT(c.validation_batch == 128 && c.batches_per_epoch == 10);
    c = qn_dlrm_defaults();
    EXPECT_OK(qn_dlrm_config_read("meta", &c, &error));
    EXPECT(c.dense_hidden[0] == 512 && c.prediction_hidden[1] == 256 && c.optimizer == QN_SGD);
    /* what is written is read back */
    c.table_type = QN_BF16;
    c.interaction = QN_INTERACT_OUTER;
    snprintf(c.train_path, sizeof(c.train_path), "a \"b\".parquet");
    char *words = qn_dlrm_config_text(&c);
    qn_dlrm_config back = qn_dlrm_defaults();
    EXPECT_OK(qn_dlrm_config_parse("again", words, &back, &error));
    char *again = qn_dlrm_config_text(&back);
    EXPECT_TEXT(again, words);
    EXPECT(back.table_type == QN_BF16 && back.interaction == QN_INTERACT_OUTER);
    free(words);
    free(again);
}

TEST(faults_of_configurations)
{
    EXPECT_TEXT(fault_of("{\"use_modulus_hash\": false, \"learning_rat\": 1}"),
                "m.json: there is no key `learning_rat`; did you mean learning_rate");
    EXPECT_TEXT(fault_of("{\"dense_mlp\": {\"hidden_layer_size\": [1]}}"),
                "m.json: there is no key `hidden_layer_size` in `dense_mlp`; did you mean hidden_layer_sizes");
    EXPECT_TEXT(fault_of("{\"dense_mlp\": {\"output_size\": 8}, \"sparse_embedding_sizes\": {\"SPARSE_0\": 16}}"),
                "m.json: `dense_mlp.output_size` is 8 and the tables are 16 wide: they interact, and must be equal");
    EXPECT_TEXT(fault_of("{\"sparse_embedding_sizes\": {\"A\": 16, \"B\": 8}}"),
                "m.json: `A` is 16 wide and `B` 8: all tables of a model have one width");
    EXPECT_TEXT(fault_of("{\"batch_size\": 256, \"num_epochs\": 1, \"batch_size\": 3}"),
                "m.json: the key `batch_size` is there twice");
    EXPECT_TEXT(fault_of("{\"sparse_embedding_sizes\": {\"A\": 16, \"A\": 16}}"), "m.json: the key `A` is there twice");
    EXPECT_TEXT(fault_of("{\"dense_mlp\": {\"output_size\": 8, \"output_size\": 16}}"),
                "m.json: the key `output_size` is there twice");
    EXPECT_TEXT(fault_of("{\"interaction\": \"dots\"}"), "m.json: `interaction` takes \"dot\", \"outer\" or \"cat\"");
    EXPECT(strstr(fault_of("{\"model_path\": \"a\xff\"}"), "bytes that are not UTF-8"));
    /* what is written is read again as the same */
    qn_dlrm_config named = qn_dlrm_defaults(), again = qn_dlrm_defaults();
    EXPECT(!qn_dlrm_config_parse("m.json", "{\"model_path\": \"\\ud83d\\ude00 \\ud83d\"}", &named, &error));
    EXPECT_TEXT(named.model_path, "\xf0\x9f\x98\x80 \xef\xbf\xbd");
    char *printed = qn_dlrm_config_text(&named);
    EXPECT(!qn_dlrm_config_parse("m.json", printed, &again, &error));
    EXPECT_TEXT(again.model_path, named.model_path);
    free(printed);
    EXPECT_TEXT(fault_of("{\"learning_rate\": -1}"), "m.json: `learning_rate` takes a number above 0");
    EXPECT_TEXT(fault_of("{\"batch_size\": 1.5}"), "m.json: `batch_size` takes a whole number from 1");
    EXPECT_TEXT(fault_of("[]"), "m.json: a configuration is a JSON object");
    EXPECT_TEXT(fault_of("{\"use_modulus_hash\": false}"), "");
    qn_dlrm_config c = qn_dlrm_defaults();
    EXPECT(qn_dlrm_config_read(path_of("absent.json"), &c, &error) == QN_BAD_FILE);
    EXPECT(qn_dlrm_config_read(NULL, &c, &error) == QN_BAD_CALL);
}

#endif
