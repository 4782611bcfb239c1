// Let the tool runner of Anthropic's TypeScript SDK add two numbers, with its defaults.
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";

const client = new Anthropic({ baseURL: process.env.GATEWAY_URL, apiKey: process.env.GATEWAY_KEY, maxRetries: 0 });
const add = betaTool({
  name: "add",
  description: "Add two numbers.",
  inputSchema: {
    type: "object",
    properties: { a: { type: "number" }, b: { type: "number" } },
    required: ["a", "b"],
  },
  run: ({ a, b }) => String(a + b),
});
const last = await client.beta.messages.toolRunner({
  model: process.env.GATEWAY_MODEL,
  max_tokens: 100,
  tools: [add],
  stream: process.env.STREAM === "1",
  messages: [{ role: "user", content: "How much is 40 and 2?" }],
}).runUntilDone();
const message = typeof last.finalMessage === "function" ? await last.finalMessage() : last;
console.log(message.content.map((block) => block.text ?? "").join(""));
