package exactjson_test

import (
	"errors"
	"testing"

	"wgsteer/internal/exactjson"
)

func TestUnmarshal(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"the field":           {`{"domain":"a"}`, "a"},
		"others are ignored":  {`{"x":{"domain":"b"},"domain":"a","y":[1]}`, "a"},
		"other case is other": {`{"Domain":"a","DOMAIN":"b"}`, ""},
		"null is missing":     {`{"domain":null}`, ""},
		"the last one counts": {`{"domain":"a","domain":"b"}`, "b"},
		"white space":         {" {\n\"domain\" : \"a\" } \n", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			if err := exactjson.Unmarshal([]byte(tt.in), exactjson.Field{Name: "domain", Into: &got}); err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("domain = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	for in, want := range map[string]error{
		"": exactjson.ErrSyntax, "domain=a": exactjson.ErrSyntax, `{"domain":"a"`: exactjson.ErrSyntax, `{} {}`: exactjson.ErrSyntax,
		"null": exactjson.ErrObject, "[]": exactjson.ErrObject, `"a"`: exactjson.ErrObject, "1": exactjson.ErrObject,
	} {
		var got string
		if err := exactjson.Unmarshal([]byte(in), exactjson.Field{Name: "domain", Into: &got}); !errors.Is(err, want) {
			t.Errorf("Unmarshal(%q): %v, want %v", in, err, want)
		}
	}
	var field *exactjson.FieldError
	var got string
	err := exactjson.Unmarshal([]byte(`{"domain":1}`), exactjson.Field{Name: "domain", Into: &got})
	if !errors.As(err, &field) || field.Field != "domain" {
		t.Errorf("a number for text: %v, want a FieldError of domain", err)
	}
}
