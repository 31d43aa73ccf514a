// What OpenAI's SDK for Go makes of a server's answers: see run.py.   sdk URL TEXTS
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

func main() {
	background := context.Background()
	client := openai.NewClient(
		option.WithBaseURL(os.Args[1]), option.WithAPIKey("any"), option.WithMaxRetries(0))
	answers := map[string]any{}
	body := openai.EmbeddingNewParams{Model: "minilm"}
	if err := json.Unmarshal([]byte(os.Args[2]), &body.Input.OfArrayOfStrings); err != nil {
		panic(err)
	}
	for _, form := range []string{"default", "float"} { // its structs have no room for base64
		if form != "default" {
			body.EncodingFormat = openai.EmbeddingNewParamsEncodingFormat(form)
		}
		answer, err := client.Embeddings.New(background, body)
		if err != nil {
			panic(err)
		}
		rows := [][]float64{}
		for _, each := range answer.Data {
			rows = append(rows, each.Embedding)
		}
		answers[form] = rows
	}
	models := []string{}
	for page := client.Models.ListAutoPaging(background); page.Next(); {
		models = append(models, page.Current().ID)
	}
	answers["models"] = models
	body.Model = "strange"
	var refused *openai.Error
	if _, err := client.Embeddings.New(background, body); errors.As(err, &refused) {
		answers["error"] = []any{refused.StatusCode, refused.Code}
	}
	text, _ := json.Marshal(answers)
	fmt.Println(string(text))
}
