// The Vercel AI SDK: generateText and streamText, with the provider package of each protocol.
import { readFileSync } from "node:fs";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const asked = JSON.parse(readFileSync(0, "utf8"));
const calls = [];
const apiKey = "a-key";
const v1 = `${asked.base_url}/v1`;
const models = {
  anthropic: () => createAnthropic({ baseURL: v1, apiKey })(asked.model),
  "openai-responses": () => createOpenAI({ baseURL: v1, apiKey }).responses(asked.model),
  "openai-chat": () => createOpenAICompatible({ name: "gateway", baseURL: v1, apiKey })(asked.model),
  // A name with a slash is a path to it.
  gemini: () => createGoogleGenerativeAI({ baseURL: `${asked.base_url}/v1beta`, apiKey })(`models/${asked.model}`),
};
const tools = {
  get_weather: tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      calls.push(["get_weather", city]);
      return asked.towns[city];
    },
  }),
  save_note: tool({
    description: "Saves a note.",
    inputSchema: z.object({ text: z.string(), number: z.number().int() }),
    execute: async ({ text, number }) => {
      calls.push(["save_note", text, number]);
      return asked.kept;
    },
  }),
};
const options = {
  model: models[asked.protocol](),
  tools,
  prompt: asked.task,
  stopWhen: stepCountIs(6),
  maxRetries: 0,
};
let text;
if (asked.stream) {
  const result = streamText({ ...options, onError: ({ error }) => { throw error; } });
  text = await result.text;
} else {
  ({ text } = await generateText(options));
}
process.stdout.write(`\n${JSON.stringify({ calls, text })}\n`);
